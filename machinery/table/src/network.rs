//! Cells of services, endpoints and ingresses.

use crate::cells::{Function, first_of, int, items, joined, or, strings, text};
use freehold_machinery::Value;

/// Addresses, ports and hosts that a cell shows at most.
const MOST: usize = 3;

pub(crate) const CELLS: &[(&str, Function)] = &[
    ("endpoints", |o, _, _| endpoints(o).into()),
    ("ingress-class", |o, _, _| or(o.pointer("/spec/ingressClassName"), "<none>").into()),
    ("ingress-hosts", |o, _, _| hosts(o).into()),
    ("ingress-parameters", |o, _, _| parameters(o).into()),
    ("ingress-ports", |o, _, _| if items(o, "/spec/tls").is_empty() { "80" } else { "80, 443" }.into()),
    ("load-balancer", |o, _, _| load_balancer(o).into()),
    ("parent-ref", |o, _, _| parent(o).into()),
    ("service-cluster-ip", |o, _, _| or(o.pointer("/spec/clusterIPs/0"), "<none>").into()),
    ("service-external-ip", |o, _, _| external_ip(o).into()),
    ("service-ports", |o, _, _| joined(items(o, "/spec/ports").iter().map(service_port), ",").into()),
    ("slice-endpoints", |o, _, _| slice_endpoints(o).into()),
    ("slice-ports", |o, _, _| slice_ports(o).into()),
];

fn service_port(port: &Value) -> String {
    let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
    match int(port, "/nodePort") {
        0 => format!("{number}/{protocol}"),
        node => format!("{number}:{node}/{protocol}"),
    }
}

fn external_ip(service: &Value) -> String {
    let external = || strings(service.pointer("/spec/externalIPs"));
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => joined(external(), ","),
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let addresses = ingress_addresses(service);
            let all: Vec<_> = addresses.iter().map(String::as_str).chain(external()).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses and names of the load balancer, sorted, each once.
fn ingress_addresses(object: &Value) -> Vec<String> {
    let address = |ingress: &Value| match text(ingress, "/ip") {
        "" => text(ingress, "/hostname").to_owned(),
        ip => ip.to_owned(),
    };
    let mut addresses: Vec<_> =
        items(object, "/status/loadBalancer/ingress").iter().map(address).filter(|a| !a.is_empty()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn load_balancer(ingress: &Value) -> String {
    ingress_addresses(ingress).join(",")
}

/// The first hosts of the rules; what is left out is counted in rules, whether they have a host or not.
fn hosts(ingress: &Value) -> String {
    let rules = items(ingress, "/spec/rules");
    let with_host = rules.iter().enumerate().filter(|(_, rule)| !text(rule, "/host").is_empty());
    let (last, hosts): (Vec<usize>, Vec<&str>) =
        with_host.map(|(at, rule)| (at, text(rule, "/host"))).take(MOST).unzip();
    match last.get(MOST - 1) {
        Some(last) if last + 1 < rules.len() => {
            format!("{} + {} more...", hosts.join(","), rules.len() - MOST)
        }
        _ if hosts.is_empty() => "*".to_owned(),
        _ => hosts.join(","),
    }
}

fn parameters(class: &Value) -> String {
    let Some(parameters) = class.pointer("/spec/parameters") else { return "<none>".to_owned() };
    let group = text(parameters, "/apiGroup");
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
}

fn parent(address: &Value) -> String {
    let Some(parent) = address.pointer("/spec/parentRef") else { return "<none>".to_owned() };
    let group = text(parent, "/group");
    let dot = if group.is_empty() { "" } else { "." };
    let parts = [text(parent, "/namespace"), text(parent, "/name")];
    let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    format!("{}{dot}{group}/{path}", text(parent, "/resource"))
}

fn endpoints(endpoints: &Value) -> String {
    let mut list = Vec::new();
    for subset in items(endpoints, "/subsets") {
        let addresses = || items(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            list.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            list.extend(addresses().map(|ip| host_port(ip, int(port, "/port"))));
        }
    }
    if list.is_empty() { "<none>".to_owned() } else { first_of(&list, MOST, ",") }
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn slice_ports(slice: &Value) -> String {
    let port = |port: &Value| match port.get("port") {
        Some(Value::Number(number)) => number.to_string(),
        _ => or(port.get("name"), "*"),
    };
    some(items(slice, "/ports").iter().map(port).collect())
}

fn slice_endpoints(slice: &Value) -> String {
    let addresses = |endpoint| strings(Value::get(endpoint, "addresses")).map(str::to_owned);
    some(items(slice, "/endpoints").iter().flat_map(addresses).collect())
}

fn some(list: Vec<String>) -> String {
    if list.is_empty() { "<unset>".to_owned() } else { first_of(&list, MOST, ",") }
}
