//! `freehold tenancy list`, `show` and `create`.

use anyhow::{Context as _, Result};
use freehold_client::{Client, ListOptions};
use freehold_machinery::{Value, meta};
use freehold_tenancy_api::TENANT_LABEL;
use freehold_tenancy_api::tenant::{Member, Subject, SubjectKind, Tenant, TenantSpec};
use freehold_tenancy_controllers::observed::{NAMESPACES, TENANTS};
use std::fmt::Write as _;

/// Arguments of `freehold tenancy create`.
#[derive(clap::Args, Debug)]
pub(crate) struct Create {
    /// Name of the tenant.
    tenant: String,
    /// User who owns it; may be given several times.
    #[arg(long = "owner")]
    owners: Vec<String>,
    /// Group whose members edit in it; may be given several times.
    #[arg(long = "editor-group")]
    editor_groups: Vec<String>,
    /// Namespace to create in it, without the tenant's name as prefix; may be given several times.
    #[arg(long = "namespace")]
    namespaces: Vec<String>,
    /// Name of a Quota.
    #[arg(long, default_value = "")]
    quota: String,
    /// Name of the tenant above.
    #[arg(long, default_value = "")]
    parent: String,
    /// Let owners and editors create namespaces.
    #[arg(long)]
    self_service: bool,
}

impl Create {
    fn tenant(&self) -> Tenant {
        let members =
            [("owner", SubjectKind::User, &self.owners), ("editor", SubjectKind::Group, &self.editor_groups)];
        let members = members.into_iter().filter(|(_, _, names)| !names.is_empty());
        let mut spec = TenantSpec {
            parent: self.parent.clone(),
            quota: self.quota.clone(),
            members: members
                .map(|(role, kind, names)| Member {
                    role: role.to_owned(),
                    subjects: names.iter().map(|name| subject(kind, name)).collect(),
                })
                .collect(),
            ..TenantSpec::default()
        };
        spec.namespaces.self_service = self.self_service;
        spec.namespaces.declared = self
            .namespaces
            .iter()
            .map(|name| freehold_tenancy_api::tenant::DeclaredNamespace {
                name: name.clone(),
                prefixed: true,
                ..Default::default()
            })
            .collect();
        Tenant::new(&self.tenant, spec)
    }
}

fn subject(kind: SubjectKind, name: &str) -> Subject {
    Subject { kind, name: name.to_owned(), namespace: String::new() }
}

pub(crate) async fn create(client: &Client, args: &Create) -> Result<()> {
    let mut object = serde_json::to_value(args.tenant())?;
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    client.create(&TENANTS, &object).await.context("failed to create the tenant")?;
    println!("tenant {:?} created; `freehold tenancy show {}` shows it", args.tenant, args.tenant);
    Ok(())
}

pub(crate) async fn list(client: &Client) -> Result<()> {
    let tenants = client.list_all(&TENANTS, None, &ListOptions::default()).await?;
    let rows = tenants.items.iter().map(|tenant| {
        let text = |pointer: &str| tenant.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
        [
            meta::name(tenant).to_owned(),
            text("/status/phase"),
            tenant.pointer("/status/namespaces").map_or("0".to_owned(), Value::to_string),
            text("/spec/quota"),
            text("/spec/parent"),
        ]
    });
    print!("{}", table(&["NAME", "PHASE", "NAMESPACES", "QUOTA", "PARENT"], rows.collect()));
    Ok(())
}

fn table<const N: usize>(head: &[&str; N], rows: Vec<[String; N]>) -> String {
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("   ").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    std::iter::once(line(*head)).chain(body).collect()
}

pub(crate) async fn show(client: &Client, name: &str) -> Result<()> {
    let tenant = client.get(&TENANTS, None, name).await?;
    let options = ListOptions { label_selector: format!("{TENANT_LABEL}={name}"), ..ListOptions::default() };
    let namespaces = client.list_all(&NAMESPACES, None, &options).await?;
    let tenant: Tenant = serde_json::from_value(tenant).context("the tenant cannot be read")?;
    print!("{}", describe(&tenant, &namespaces.items));
    Ok(())
}

fn describe(tenant: &Tenant, namespaces: &[Value]) -> String {
    let mut text = format!("tenant      {} ({})\n", tenant.metadata.name, tenant.status.phase);
    // Writing to a String can't fail.
    for member in &tenant.spec.members {
        for subject in &member.subjects {
            let _ = writeln!(text, "member      {} {:?} {}", member.role, subject.kind, subject.name);
        }
    }
    for namespace in namespaces {
        let conditions = &namespace["status"]["conditions"];
        let ready =
            freehold_runtime::conditions::find(conditions, freehold_tenancy_decide::namespace::CONDITION);
        let reason = ready.and_then(|ready| ready["reason"].as_str()).unwrap_or("pending");
        let _ = writeln!(text, "namespace   {} ({reason})", meta::name(namespace));
    }
    for (counter, quota) in &tenant.status.quota {
        let _ = writeln!(text, "quota       {counter}: {} of {}", quota.used, quota.hard);
    }
    for condition in &tenant.status.conditions {
        let _ = writeln!(
            text,
            "condition   {}={} ({}) {}",
            condition.type_, condition.status, condition.reason, condition.message
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_columns_as_wide_as_their_cells() {
        let rows = vec![["a".to_owned(), "1".to_owned()], ["longer".to_owned(), "2".to_owned()]];
        assert_eq!(table(&["NAME", "N"], rows), "NAME     N\na        1\nlonger   2\n");
    }
}
