#[test]
fn broken() {
    let x: u32 = "a";
}
