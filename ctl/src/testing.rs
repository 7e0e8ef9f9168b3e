//! Comparing output with files below `ctl/tests/golden`.

use std::fs;
use std::path::Path;

/// Checks `text` against the file; `UPDATE_GOLDEN=1` writes it anew.
#[track_caller]
pub(crate) fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(file.parent().expect("a file in a folder")).unwrap();
        fs::write(&file, text).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == text, "{name} is not what comes out now:\n{text}\nit was:\n{kept}");
}
