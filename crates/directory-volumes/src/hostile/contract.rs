//! The contract, with claims that want one directory and people who make directories by hand.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kube_provisioner::conformance::Conformance;

/// Checks every rule on `root`, with a class whose volumes are named after their claims. What people make by hand where such a
/// volume would be stays, with what is in it.
pub fn contract(kit: Conformance, root: &Path) {
    let made = Arc::new(Mutex::new(Vec::new()));
    let (root, makes) = (root.to_owned(), Arc::clone(&made));
    kit.shares_names([("pathPattern", "${pvc.metadata.namespace}_${pvc.metadata.name}")])
        .made_by_hand(async move |_, claim| {
            let name = format!("default_{claim}");
            let directory = root.join(&name);
            // The provisioner may have been quicker.
            fs::create_dir(&directory).ok()?;
            fs::write(directory.join("precious"), "x").unwrap();
            makes.lock().unwrap().push(directory);
            Some(name)
        })
        .check();
    let made = made.lock().unwrap();
    assert!(!made.is_empty(), "nobody made anything by hand");
    let gone: Vec<_> = made.iter().filter(|directory| !directory.join("precious").exists()).collect();
    assert!(gone.is_empty(), "gone: {gone:?}");
}
