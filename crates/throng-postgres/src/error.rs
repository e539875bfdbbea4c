//! Explains errors of the server or the network in a sentence that says what to do.

use crate::options::PostgresOptions;
use std::{error::Error as _, io};
use throng_journal::Error;
use tokio_postgres::error::SqlState;

/// Makes an error of an attempt and its failure.
pub(crate) fn failed(doing: &str, options: &PostgresOptions) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |error| Error::backend(format!("{doing} ({})", options.place()), explain(&error, options))
}

/// Returns a sentence: the fault, and what to do.
pub(crate) fn explain(error: &tokio_postgres::Error, options: &PostgresOptions) -> String {
    if let Some(said) = error.as_db_error() {
        let advice = advice(said.code(), options);
        let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let message = said.message();
        let code = said.code().code();
        return match advice {
            Some(advice) => format!("the server says \"{message}\"{detail} [{code}]: {advice}"),
            None => format!("the server says \"{message}\"{detail} [{code}]"),
        };
    }
    let cause = error
        .source()
        .map(|cause| format!(": {}", causes(cause)))
        .unwrap_or_default();
    if error.is_closed() {
        return "the connection was lost".into();
    }
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let advice = match io.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            "; is PostgreSQL running there, and are host and port right?"
        }
        Some(io::ErrorKind::TimedOut) => "; the host does not answer: look at host, port and firewall",
        _ if cause.contains("server does not support TLS") => "; set sslmode=disable if the way to it is safe",
        _ if cause.contains("certificate") || cause.contains("UnknownIssuer") => {
            "; name the authority's file with sslrootcert=FILE, or set sslmode=require to encrypt without checking"
        }
        _ if cause.contains("lookup address") => "; there is no host of that name",
        _ => "",
    };
    format!("{error}{cause}{advice}")
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

fn advice(code: &SqlState, options: &PostgresOptions) -> Option<String> {
    let database = options.config.get_dbname().unwrap_or("the database");
    let user = options.config.get_user().unwrap_or("the user");
    let schema = &options.schema;
    Some(
        if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
            "look at user and password in the URL (or PGPASSWORD), and at the server's pg_hba.conf".into()
        } else if *code == SqlState::INVALID_CATALOG_NAME {
            format!("create it first, with `createdb {database}` or `CREATE DATABASE {database}`")
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            "the server takes no writes: it is a standby or default_transaction_read_only is on; name the primary in the URL".into()
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
            format!(
                "let the user {user} create and use the schema {schema}: GRANT CREATE ON DATABASE {database} TO {user}"
            )
        } else if *code == SqlState::TOO_MANY_CONNECTIONS {
            "raise max_connections, or take a smaller pool= in the URL".into()
        } else if *code == SqlState::DISK_FULL {
            "make room on the server's disk; the engine goes on by itself then".into()
        } else if *code == SqlState::QUERY_CANCELED {
            "it was cancelled, or took longer than statement_timeout: raise that for this user or set it to 0".into()
        } else if *code == SqlState::LOCK_NOT_AVAILABLE {
            "another session holds what is needed and does not end; see pg_stat_activity and pg_locks".into()
        } else if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN {
            "the connection was ended by the server".into()
        } else if *code == SqlState::CANNOT_CONNECT_NOW {
            "it is starting or ending; try again in a moment".into()
        } else if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN {
            format!("the schema {schema} is not as this program made it; was it changed by hand?")
        } else {
            return None;
        },
    )
}
