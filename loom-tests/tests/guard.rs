//! A run of models without its cfg compiles them away and would be green: the scripts say what they expect.

#[test]
fn the_cfg_that_was_expected_is_there() {
    let built_with = [("loom", cfg!(loom)), ("shuttle", cfg!(shuttle)), ("mutants", cfg!(mutants))];
    let expected = std::env::var("PHALANX_EXPECT_CFG").unwrap_or_default();
    for name in expected.split_whitespace() {
        assert!(built_with.contains(&(name, true)), "--cfg {name} was expected and is not there: is RUSTFLAGS overridden?");
    }
}
