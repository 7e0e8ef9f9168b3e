//! Keys that are read and checked but not carried out by this version.
//!
//! Pure. Silence would be a lie: whoever writes `sampling_provider` wants it to be asked.

use super::{Config, Finding, Severity};

/// One warning for each such key that is set.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let warn = |key: String, message: &str, hint: &str| Finding {
        severity: Severity::Warning,
        server: None,
        file: Some(config.file.clone()),
        line: 0,
        key,
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    let mut out = Vec::new();
    let sections = [
        // Without the exporter in this build nothing would come of it.
        ("otlp", !cfg!(feature = "otlp") && config.daemon.otlp.is_some()),
    ];
    for (key, _) in sections.into_iter().filter(|(_, set)| *set) {
        let message = "is read but not used by this version";
        out.push(warn(format!("hermesd.{key}"), message, "remove it, or keep it for later"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_of_traces_has_no_effect_only_in_builds_without_it() {
        let mut config = Config::default();
        config.daemon.otlp =
            Some(crate::config::OtlpConfig { endpoint: "http://h:4318".to_owned(), sample_ratio: 1.0 });
        let named = findings(&config).iter().any(|finding| finding.key == "hermesd.otlp");
        assert_eq!(named, !cfg!(feature = "otlp"));
    }
}
