//! Our side, read from the source of the messages and services.

use syn::{Attribute, Field, Fields, Item, Type};

use super::{Types, plain, snake};

/// The messages in these sources.
pub(crate) fn types(sources: &[&str]) -> Types {
    let mut found = Found::default();
    for source in sources {
        found.items(&syn::parse_file(source).unwrap().items, "");
    }
    for (path, fields) in &mut found.types {
        // The variants of a oneof are fields of the message.
        *fields = std::mem::take(fields)
            .into_iter()
            .flat_map(|field| match field.strip_prefix("oneof ").and_then(|oneof| oneof.split_once(" tags=")) {
                Some((name, tags)) => variants(&found.oneofs[&format!("{path}.{}", plain(name))], name, tags),
                None => vec![field],
            })
            .collect();
    }
    found.types
}

/// prost reads only what is in `tags`.
fn variants(lines: &[String], oneof: &str, tags: &str) -> Vec<String> {
    let numbers: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert_eq!(numbers.join(","), tags, "{oneof}");
    lines.iter().map(|line| format!("{line} oneof {oneof}")).collect()
}

/// The calls that are in the macro `service!`, after the package's name.
pub(crate) fn methods(source: &str) -> Vec<String> {
    let mut service = String::new();
    let mut methods = Vec::new();
    for line in source.lines().skip_while(|line| *line != "service! {").map(str::trim) {
        if let Some((name, rest)) = line.split_once(", ").filter(|_| line.ends_with("\" {")) {
            let package = rest.split('"').nth(1).unwrap();
            service = format!("{package}.{name}");
        } else if let Some((name, (types, _))) =
            line.split_once(' ').zip(line.split_once(';')).map(|((name, _), rest)| (name, rest))
            && let Some((method, types)) = types.split_once('(')
        {
            assert_eq!(plain(method.split_once(' ').unwrap().1), plain(name), "the method of a call has its name");
            methods.push(format!("{service}.{name}({types}"));
        }
    }
    methods
}

#[derive(Default)]
struct Found {
    types: Types,
    oneofs: Types,
}

impl Found {
    fn items(&mut self, items: &[Item], path: &str) {
        let inside = |name: String| if path.is_empty() { name } else { format!("{path}.{name}") };
        for item in items {
            match item {
                Item::Mod(module) if module.content.is_some() => {
                    self.items(&module.content.as_ref().unwrap().1, &inside(plain(&module.ident.to_string())));
                }
                Item::Macro(item) if item.mac.path.is_ident("message") => {
                    self.items(&[item.mac.parse_body().unwrap()], path);
                }
                Item::Struct(message) => {
                    let fields = message.fields.iter().map(field).collect();
                    self.types.insert(inside(plain(&message.ident.to_string())), fields);
                }
                Item::Enum(item) if item.variants.iter().all(|variant| variant.discriminant.is_some()) => {
                    let value = |variant: &syn::Variant| {
                        let number = &variant.discriminant.as_ref().unwrap().1;
                        format!("{} = {}", plain(&variant.ident.to_string()), text(number))
                    };
                    let values = item.variants.iter().map(value).collect();
                    self.types.insert(inside(plain(&item.ident.to_string())), values);
                }
                Item::Enum(item) => {
                    let variant = |variant: &syn::Variant| {
                        let Fields::Unnamed(fields) = &variant.fields else { panic!("{}", variant.ident) };
                        let prost = Prost::of(&variant.attrs);
                        assert_eq!(prost.kinds, ["message"]);
                        format!("{} = {} {}", snake(&variant.ident.to_string()), prost.tag, last(&fields.unnamed[0].ty))
                    };
                    let variants = item.variants.iter().map(variant).collect();
                    self.oneofs.insert(inside(plain(&item.ident.to_string())), variants);
                }
                _ => {}
            }
        }
    }
}

fn field(field: &Field) -> String {
    let name = field.ident.as_ref().unwrap().to_string().trim_start_matches("r#").to_owned();
    let Prost { kinds, tag } = Prost::of(&field.attrs);
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let rust = text(&field.ty);
    let kind = match (kinds[..].first().copied().unwrap_or_default(), rust.as_str()) {
        (kind, _) if kind.starts_with("oneof=") => return format!("oneof {name} {}", kinds[1]),
        ("message", "Secrets") if kinds == ["message", "repeated"] => "map secret".to_owned(),
        ("btree_map=string,string", "BTreeMap<String,String>") => "map".to_owned(),
        ("btree_map=string,message", _) if rust.starts_with("BTreeMap<String,") => {
            format!("map<string, {}>", last(&field.ty))
        }
        ("message", _) if kinds == ["message", "repeated"] && rust.starts_with("Vec<") => {
            format!("repeated {}", last(&field.ty))
        }
        ("message", "Option<bool>") => "boolvalue".to_owned(),
        ("message", "Option<i64>") => "int64value".to_owned(),
        ("message", _) if kinds == ["message", "optional"] && rust.starts_with("Option<") => last(&field.ty),
        ("string", "Vec<String>") if kinds == ["string", "repeated"] => "repeated string".to_owned(),
        ("string", "String") | ("bool", "bool") | ("int64", "i64") | ("int32", "i32") if kinds.len() == 1 => {
            kinds[0].to_owned()
        }
        (kind, "i32") if kind.starts_with("enumeration=") => plain(kind.rsplit(['=', ':']).next().unwrap()),
        _ => panic!("{name}: {kinds:?} {rust}"),
    };
    match kind.strip_suffix(" secret") {
        Some(kind) => format!("{name} = {tag} {kind} secret"),
        None => format!("{name} = {tag} {kind}"),
    }
}

/// The attribute of a field: `message`, `optional`; the number.
struct Prost {
    kinds: Vec<String>,
    tag: String,
}

impl Prost {
    fn of(attributes: &[Attribute]) -> Self {
        let attribute =
            attributes.iter().find(|attribute| attribute.path().is_ident("prost")).expect("a prost attribute");
        let (mut kinds, mut tag) = (Vec::new(), String::new());
        attribute
            .parse_nested_meta(|meta| {
                let name = meta.path.get_ident().unwrap().to_string();
                match meta.value() {
                    Ok(value) => {
                        let value = value.parse::<syn::LitStr>()?.value().replace(' ', "");
                        if name == "tag" { tag = value } else { kinds.push(format!("{name}={value}")) }
                    }
                    Err(_) => kinds.push(name),
                }
                Ok(())
            })
            .unwrap();
        Self { kinds, tag }
    }
}

/// The innermost name: `Topology` of `Vec<super::Topology>`.
fn last(kind: &Type) -> String {
    let text = text(kind);
    plain(text.trim_end_matches('>').rsplit(['<', ':', ',']).next().unwrap())
}

fn text(tokens: &impl quote::ToTokens) -> String {
    tokens.to_token_stream().to_string().replace(' ', "")
}
