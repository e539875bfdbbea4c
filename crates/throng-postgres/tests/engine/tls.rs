//! Connections are encrypted if the URL says so, and the certificate is verified as far as it says.

use servers::{Postgres, PostgresOptions as ServerOptions};
use std::{fs, path::Path};
use throng_postgres::open_postgres;

/// Returns a self-signed certificate for a name, and its key.
fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_certificate_is_checked_where_the_url_asks_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mine, key) = certificate("localhost");
    let (others, _) = certificate("localhost");
    let (mine, others) = (
        written(directory.path(), "mine.pem", &mine),
        written(directory.path(), "others.pem", &others),
    );
    let options = ServerOptions {
        tls: Some((fs::read_to_string(&mine).unwrap(), key)),
        ..ServerOptions::default()
    };
    let server = Postgres::start(options).unwrap();
    let by_name = server.url("postgres").replace("127.0.0.1", "localhost");
    let open = |url: String| {
        open_postgres(url.parse().unwrap())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    for mode in ["disable", "prefer", "require"] {
        assert_eq!(open(format!("{by_name}?sslmode={mode}")), Ok(()), "{mode}");
    }
    assert_eq!(
        open(format!("{by_name}?sslmode=verify-full&sslrootcert={mine}")),
        Ok(())
    );
    for unknown in [String::new(), format!("&sslrootcert={others}")] {
        let said = open(format!("{by_name}?sslmode=verify-full{unknown}")).unwrap_err();
        assert!(
            said.contains("certificate") && said.contains("sslrootcert=FILE"),
            "{said}"
        );
    }
    let address = server.url("postgres");
    let said = open(format!("{address}?sslmode=verify-full&sslrootcert={mine}")).unwrap_err();
    assert!(
        said.contains("certificate"),
        "the certificate is not of 127.0.0.1: {said}"
    );
    let said = open(format!("{by_name}?sslmode=verify-full&sslrootcert=nowhere.pem")).unwrap_err();
    assert!(said.contains("nowhere.pem"), "{said}");
}
