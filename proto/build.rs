//! Compiles `hermes/control/v1/*.proto` with protox (no protoc needed) and generates the tonic stub.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=hermes");
    let descriptors = protox::compile(["hermes/control/v1/control.proto"], ["."])?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .type_attribute(".", "#[derive(::serde::Serialize)] #[serde(rename_all = \"snake_case\")]")
        .compile_fds(descriptors)?;
    Ok(())
}
