//! Fields of exported kinds that name objects, `x-freehold-reference` in a schema: which there are, and what an object says
//! in them.

use serde_json::Value;

/// The extension of a field's schema.
pub const EXTENSION: &str = "x-freehold-reference";
/// Fields of one version that can have it.
const MAX: usize = 16;
/// Levels of a schema that are looked at.
const DEPTH: usize = 16;
/// Objects that one object can name in a field.
pub const MAX_NAMED: usize = 100;

/// A field of an exported kind that names an object of an exported kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The way to it: names of fields, `[]` for each item of a list.
    pub path: Vec<String>,
    /// The group of what is named; empty for the group of the kind itself.
    pub group: String,
    /// The resource of what is named.
    pub resource: String,
    /// Whether an object can't be deleted while it is named.
    pub blocks: bool,
}

/// An object as a field names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The project; empty for the own one.
    pub project: String,
    /// The namespace; empty for the own one, or for none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Reference {
    /// The field as messages name it.
    pub fn field(&self) -> String {
        self.path.iter().fold(String::new(), |mut text, step| {
            if step != "[]" && !text.is_empty() {
                text.push('.');
            }
            text + step
        })
    }

    /// The objects that an object names in this field, at most one more than [`MAX_NAMED`].
    pub fn named(&self, object: &Value) -> Vec<Named> {
        let mut found = Vec::new();
        gather(object, &self.path, &mut found);
        found
    }
}

fn gather(value: &Value, path: &[String], found: &mut Vec<Named>) {
    if found.len() > MAX_NAMED {
        return;
    }
    let Some((step, rest)) = path.split_first() else {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let named = Named { project: text("project"), namespace: text("namespace"), name: text("name") };
        if !named.name.is_empty() {
            found.push(named);
        }
        return;
    };
    match step.as_str() {
        "[]" => value.as_array().into_iter().flatten().for_each(|item| gather(item, rest, found)),
        field => value.get(field).into_iter().for_each(|value| gather(value, rest, found)),
    }
}

/// The references of a version's schema.
///
/// # Errors
/// What is wrong with one of them, and where.
pub fn references(schema: &Value) -> Result<Vec<Reference>, (String, String)> {
    let mut found = Vec::new();
    walk(schema, &mut Vec::new(), &mut found)?;
    if found.len() > MAX {
        return Err((String::new(), format!("at most {MAX} fields can have {EXTENSION}")));
    }
    Ok(found)
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Reference>) -> Result<(), (String, String)> {
    if path.len() > DEPTH {
        return Ok(());
    }
    if let Some(extension) = schema.get(EXTENSION) {
        let reference = read(schema, extension, path);
        found.push(reference.map_err(|why| (path.join("."), why))?);
        return Ok(());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        walk(property, path, found)?;
        path.pop();
    }
    if schema["items"].is_object() {
        path.push("[]".to_owned());
        walk(&schema["items"], path, found)?;
        path.pop();
    }
    Ok(())
}

fn read(schema: &Value, extension: &Value, path: &[String]) -> Result<Reference, String> {
    let text = |key: &str| extension[key].as_str().unwrap_or_default().to_owned();
    let is_text = |key: &str| schema["properties"][key]["type"] == "string";
    if schema["type"] != "object" || !is_text("name") {
        return Err("it has to be an object with a property name of type string".to_owned());
    }
    let resource = text("resource");
    if resource.is_empty() {
        return Err("resource has to name a resource of the export".to_owned());
    }
    let blocks = match text("onDelete").as_str() {
        "Block" => true,
        "" | "Ignore" => false,
        _ => return Err("onDelete has to be Block or Ignore".to_owned()),
    };
    Ok(Reference { path: path.to_vec(), group: text("group"), resource, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        let named = json!({"type": "object", "properties": {"project": {"type": "string"}, "name": {"type": "string"}},
            "x-freehold-reference": {"resource": "networks", "onDelete": "Block"}});
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "network": named, "peers": {"type": "array", "items": named},
        }}}})
    }

    #[test]
    fn references_are_found_in_a_schema_and_read_from_an_object() {
        let found = references(&schema()).unwrap();
        let fields: Vec<String> = found.iter().map(Reference::field).collect();
        assert_eq!(fields, ["spec.network", "spec.peers[]"]);
        assert!(found.iter().all(|one| one.resource == "networks" && one.blocks));
        let object = json!({"spec": {"network": {"project": "p", "name": "main"}, "peers": [{"name": "a"}, {}, {"name": "b"}]}});
        let names =
            |nth: usize| found[nth].named(&object).into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!((names(0), names(1)), (vec!["main".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(found[0].named(&json!({"spec": {"network": "nonsense"}})), []);
    }

    #[test]
    fn a_reference_that_can_not_be_followed_is_refused() {
        for (wrong, why) in [
            (json!({"type": "string", EXTENSION: {"resource": "networks"}}), "has to be an object"),
            (
                json!({"type": "object", "properties": {"name": {"type": "string"}}, EXTENSION: {}}),
                "resource",
            ),
            (
                json!({"type": "object", "properties": {"name": {"type": "string"}},
                    EXTENSION: {"resource": "networks", "onDelete": "Cascade"}}),
                "onDelete",
            ),
        ] {
            let schema = json!({"type": "object", "properties": {"spec": wrong}});
            let (field, found) = references(&schema).unwrap_err();
            assert!(field == "spec" && found.contains(why), "{field}: {found}");
        }
    }

    #[test]
    fn an_object_names_a_bounded_number_of_others() {
        let found = references(&schema()).unwrap();
        let peers: Vec<Value> = (0..1000).map(|nth| json!({"name": format!("p{nth}")})).collect();
        assert_eq!(found[1].named(&json!({"spec": {"peers": peers}})).len(), MAX_NAMED + 1);
    }
}
