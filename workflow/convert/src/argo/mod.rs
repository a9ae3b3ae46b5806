//! Argo Workflows: `Workflow`, `WorkflowTemplate`, `ClusterWorkflowTemplate` and `CronWorkflow`.
//!
//! The entry point becomes a DAG; each further template with steps or tasks a DAG of its own that others run as a child, and
//! a template with a container becomes a task wherever it is called.

mod calls;
mod leaf;
mod settings;

use crate::Report;
use crate::build::{name_of, object, overlay, scalar, text_of};
use crate::fields::Fields;
use crate::library::Library;
use crate::text::{each_reference, translate_value};
use calls::Dag;
use freehold_machinery::Value;
use freehold_workflow_api::{
    DagSpec, DagTaskSpec, Parameter, ParameterType, SecretKeyRef, Task, ValueSource,
};
use std::collections::{BTreeMap, BTreeSet};

/// Templates of one definition that are looked through.
const MAX_TEMPLATES: usize = 10_000;

/// A template with its place.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    path: String,
    value: Value,
}

impl Template {
    fn is_group(&self) -> bool {
        self.value.get("dag").is_some() || self.value.get("steps").is_some()
    }
}

/// A definition under conversion.
pub(crate) struct Source<'a> {
    document: &'a Value,
    library: &'a Library<'a>,
    name: String,
    templates: BTreeMap<String, Template>,
    /// Names of the workflow's own parameters.
    parameters: BTreeSet<String>,
    /// Templates that became, or are to become, DAGs of their own.
    children: Vec<String>,
    defaults: Value,
    /// A claim that templates mount, with its path.
    workspace: Option<(String, String)>,
}

/// Converts any of the kinds.
pub(crate) fn convert(document: &Value, library: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let kind = text_of(document, "kind");
    let (path, spec) = match kind {
        "CronWorkflow" => ("spec.workflowSpec", &document["spec"]["workflowSpec"]),
        _ => ("spec", &document["spec"]),
    };
    let Some(spec) = with_reference(path, spec, library, report) else { return Vec::new() };
    let mut source = Source::new(document, library, path, &spec, report);
    let is_template = kind.ends_with("WorkflowTemplate");
    let entry = text_of(&spec, "entrypoint").to_owned();
    let mut objects = Vec::new();
    let mut settings = settings::read(&mut source, path, &spec, report);
    if kind == "CronWorkflow" {
        settings::schedule(&mut settings, &document["spec"], report);
    }
    if let Some(entry) = (!entry.is_empty()).then(|| source.templates.get(&entry).cloned()).flatten() {
        let spec =
            source.entry(settings.clone(), &entry, &format!("{path}.arguments"), &spec["arguments"], report);
        objects.push(object("DAG", &source.name, document, &spec));
    } else if !entry.is_empty() || !is_template {
        report.refuse(format!("{path}.entrypoint"), format!("there is no template {entry:?}"));
    }
    if is_template {
        source.children =
            source.templates.iter().filter(|(_, t)| t.is_group()).map(|(name, _)| name.clone()).collect();
        if entry.is_empty() {
            objects.extend(source.shared_tasks(report));
        }
    }
    // Children call further children.
    let mut n = 0;
    while let Some(name) = source.children.get(n).cloned() {
        n += 1;
        let Some(template) = source.templates.get(&name).cloned() else { continue };
        let spec = source.child(&settings, &name, &template, report);
        objects.push(object("DAG", &source.child_name(&name), document, &spec));
    }
    source.unused(&spec, report);
    objects
}

/// Lays a workflow over the template that it refers to.
fn with_reference(path: &str, spec: &Value, library: &Library<'_>, report: &mut Report) -> Option<Value> {
    let Some(reference) = spec.get("workflowTemplateRef") else { return Some(spec.clone()) };
    let kind = if reference["clusterScope"] == true { "ClusterWorkflowTemplate" } else { "WorkflowTemplate" };
    let name = text_of(reference, "name");
    let Some(template) = library.get(kind, name) else {
        report
            .refuse(format!("{path}.workflowTemplateRef"), format!("give the {kind} {name:?} along with it"));
        return None;
    };
    let mut over = spec.clone();
    over.as_object_mut()?.remove("workflowTemplateRef");
    let mut merged = overlay(&template["spec"], &over);
    merged["arguments"]["parameters"] = merge_parameters(&template["spec"]["arguments"], &spec["arguments"]);
    Some(merged)
}

fn merge_parameters(under: &Value, over: &Value) -> Value {
    let list = |value: &Value| value["parameters"].as_array().cloned().unwrap_or_default();
    let mut merged = list(under);
    for parameter in list(over) {
        match merged.iter_mut().find(|known| known["name"] == parameter["name"]) {
            Some(known) => *known = overlay(known, &parameter),
            None => merged.push(parameter),
        }
    }
    merged.into()
}

impl<'a> Source<'a> {
    fn new(
        document: &'a Value,
        library: &'a Library<'a>,
        path: &str,
        spec: &Value,
        report: &mut Report,
    ) -> Self {
        let mut templates = BTreeMap::new();
        let list = spec["templates"].as_array().map_or(&[][..], Vec::as_slice);
        if list.len() > MAX_TEMPLATES {
            report.refuse(format!("{path}.templates"), format!("more than {MAX_TEMPLATES}"));
        }
        let defaults = spec.get("templateDefaults").cloned().unwrap_or_default();
        for (n, value) in list.iter().take(MAX_TEMPLATES).enumerate() {
            let template =
                Template { path: format!("{path}.templates[{n}]"), value: overlay(&defaults, value) };
            templates.insert(text_of(value, "name").to_owned(), template);
        }
        let named = spec["arguments"]["parameters"].as_array().into_iter().flatten();
        let parameters = named.map(|parameter| text_of(parameter, "name").to_owned()).collect();
        let name = dns_name(name_of(document));
        Self {
            document,
            library,
            name,
            templates,
            parameters,
            children: Vec::new(),
            defaults,
            workspace: None,
        }
    }

    fn child_name(&self, template: &str) -> String {
        dns_name(&format!("{}-{template}", self.name))
    }

    /// The DAG of the entry point.
    fn entry(
        &mut self,
        mut spec: DagSpec,
        template: &Template,
        path: &str,
        arguments: &Value,
        report: &mut Report,
    ) -> DagSpec {
        let mut given = Fields::new(path, arguments);
        given.refuse("artifacts", "artifacts are not supported", report);
        spec.parameters = parameters(&mut given, report);
        given.finish(report);
        let lists = calls::list_inputs(template);
        for parameter in inputs(template, report) {
            if !spec.parameters.iter().any(|known| known.name == parameter.name) {
                spec.parameters.push(parameter);
            }
        }
        // `withParam: {{workflow.parameters.x}}` makes `x` a list as well.
        let workflow_lists = calls::list_workflow_parameters(template);
        for parameter in &mut spec.parameters {
            if lists.contains(&parameter.name) || workflow_lists.contains(&parameter.name) {
                make_list(parameter, path, report);
            }
        }
        let dag = Dag { is_child: false, inputs: input_names(template) };
        self.fill(&mut spec, template, &dag, report);
        spec
    }

    /// The DAG of a template that others run.
    fn child(&mut self, settings: &DagSpec, name: &str, template: &Template, report: &mut Report) -> DagSpec {
        let mut spec = DagSpec {
            pod: settings.pod.clone(),
            service_account_name: settings.service_account_name.clone(),
            automount_service_account_token: settings.automount_service_account_token,
            parameters: inputs(template, report),
            history: settings.history,
            pod_retention: settings.pod_retention,
            ..DagSpec::default()
        };
        let lists = calls::list_inputs(template);
        for parameter in spec.parameters.iter_mut().filter(|parameter| lists.contains(&parameter.name)) {
            make_list(parameter, &template.path, report);
        }
        for value in self.values_used(name) {
            spec.parameters.push(Parameter { name: value, ..Parameter::default() });
        }
        let dag = Dag { is_child: true, inputs: input_names(template) };
        self.fill(&mut spec, template, &dag, report);
        spec.finally.clear();
        spec
    }

    /// The tasks of a template: its calls, or itself.
    fn fill(&mut self, spec: &mut DagSpec, template: &Template, dag: &Dag, report: &mut Report) {
        if template.is_group() {
            calls::group(self, spec, template, dag, report);
        } else {
            let name = text_of(&template.value, "name").to_owned();
            let mut task =
                Task { name: if name.is_empty() { "main".into() } else { name }, ..Task::default() };
            leaf::fill(self, &mut task, template, dag, &BTreeMap::new(), report);
            spec.tasks.push(task);
        }
    }

    /// Templates with containers of a definition without entry point: shared tasks.
    fn shared_tasks(&mut self, report: &mut Report) -> Vec<Value> {
        let leaves: Vec<(String, Template)> = self
            .templates
            .iter()
            .filter(|(_, t)| !t.is_group())
            .map(|(name, t)| (name.clone(), t.clone()))
            .collect();
        let mut objects = Vec::new();
        for (name, template) in leaves {
            let mut task = Task { name: "main".into(), ..Task::default() };
            let dag = Dag { is_child: true, inputs: input_names(&template) };
            leaf::fill(self, &mut task, &template, &dag, &leaf::all_outputs(&template), report);
            let mut parameters = inputs(&template, report);
            let values = used_values(&template.value);
            parameters.extend(values.into_iter().map(|name| Parameter { name, ..Parameter::default() }));
            let spec = DagTaskSpec { description: String::new(), parameters, template: task.template };
            objects.push(object("DAGTask", &self.child_name(&name), self.document, &spec));
        }
        objects
    }

    /// What of the workflow a template and all that it calls refer to, by the parameter names of children.
    fn values_used(&self, name: &str) -> BTreeSet<String> {
        let (mut values, mut seen, mut next) = (BTreeSet::new(), BTreeSet::new(), vec![name.to_owned()]);
        while let Some(name) = next.pop() {
            let Some(template) = self.templates.get(&name).filter(|_| seen.insert(name.clone())) else {
                continue;
            };
            values.extend(used_values(&template.value));
            let calls = template.value["dag"]["tasks"].as_array().into_iter().flatten();
            let steps = template.value["steps"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|group| group.as_array().into_iter().flatten());
            next.extend(calls.chain(steps).map(|call| text_of(call, "template").to_owned()));
        }
        values
    }

    /// Refuses templates that nothing calls, which would be dropped.
    fn unused(&self, spec: &Value, report: &mut Report) {
        let kind = text_of(self.document, "kind");
        let calls = Value::Array(self.templates.values().map(|t| t.value.clone()).collect()).to_string();
        for (name, template) in &self.templates {
            let called = calls.contains(&format!("\"template\":{}", Value::from(name.as_str())));
            let used = [text_of(spec, "entrypoint"), text_of(spec, "onExit")].contains(&name.as_str());
            if !called && !used && !kind.ends_with("Template") {
                report.note(&template.path, "nothing calls this template");
            }
        }
    }
}

/// The pseudo-parameters that a template's texts refer to: `workflow.name` is `workflow_name` in a child.
fn used_values(template: &Value) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    each_reference(template, &mut |inner| {
        if let Some(name) = inner.strip_prefix("workflow.parameters.") {
            values.insert(format!("workflow_{name}"));
        } else if let Some(field @ ("name" | "uid" | "status" | "scheduledTime")) =
            inner.strip_prefix("workflow.")
        {
            values.insert(format!("workflow_{field}"));
        }
    });
    values
}

fn input_names(template: &Template) -> BTreeSet<String> {
    let list = template.value["inputs"]["parameters"].as_array().into_iter().flatten();
    list.map(|parameter| text_of(parameter, "name").to_owned()).collect()
}

fn inputs(template: &Template, report: &mut Report) -> Vec<Parameter> {
    let mut fields = Fields::new(format!("{}.inputs", template.path), &template.value["inputs"]);
    fields.refuse("artifacts", "artifacts are not supported", report);
    let inputs = parameters(&mut fields, report);
    fields.finish(report);
    inputs
}

fn parameters(fields: &mut Fields<'_>, report: &mut Report) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for mut each in fields.objects("parameters") {
        let name = each.text("name", report).unwrap_or_default();
        let default = each.text("default", report);
        let value = each.text("value", report).or(default);
        let mut parameter = Parameter {
            name,
            description: each.text("description", report).unwrap_or_default(),
            ..Parameter::default()
        };
        parameter.allowed = each.list("enum").iter().filter_map(scalar).map(Value::String).collect();
        if let Some(value) = &value {
            if value.contains("{{") {
                report.refuse(each.at("value"), "a default with references is not supported");
            }
            parameter.default = Some(Value::String(value.clone()));
        }
        if let Some(mut from) = each.object("valueFrom") {
            parameter.value_from = value_from(&mut from, report);
            from.finish(report);
            if parameter.value_from.is_some() {
                parameter.default = None;
            }
        }
        each.refuse("globalName", "global outputs are not supported", report);
        each.finish(report);
        parameters.push(parameter);
    }
    parameters
}

fn value_from(from: &mut Fields<'_>, report: &mut Report) -> Option<ValueSource> {
    let mut reference = from.object("configMapKeyRef")?;
    let (name, key) = (reference.text("name", report)?, reference.text("key", report)?);
    reference.finish(report);
    Some(ValueSource { config_map_key_ref: Some(SecretKeyRef { name, key }), secret_key_ref: None })
}

/// Makes a parameter whose text is a JSON list a list.
fn make_list(parameter: &mut Parameter, path: &str, report: &mut Report) {
    parameter.type_ = ParameterType::List;
    let Some(Value::String(text)) = &parameter.default else { return };
    match serde_json::from_str::<Value>(text) {
        Ok(list @ Value::Array(_)) => parameter.default = Some(list),
        _ => report.refuse(path, format!("the default of parameter {:?} is no JSON list", parameter.name)),
    }
}

/// A name as objects have it.
fn dns_name(name: &str) -> String {
    let lower: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let cut: String = lower.chars().take(63).collect();
    cut.trim_matches('-').to_owned()
}

/// Translates a value in the place of a DAG's own texts.
fn translated(source: &Source<'_>, dag: &Dag, value: &Value, path: &str, report: &mut Report) -> Value {
    translate_value(value, path, &|inner| dag.resolve(source, inner), report)
}

pub(crate) fn refused_reference(inner: &str) -> String {
    format!("{{{{{inner}}}}} has no counterpart")
}
