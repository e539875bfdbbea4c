//! A private RabbitMQ, with the port mapper its Erlang node registers with.

use crate::{
    Error, Stop,
    keeper::{Directory, Keeper},
    ports::free_port,
    programs::{self, User},
    start::{takes_connections, until_ready},
};
use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

const INSTALL: &str = "the package rabbitmq-server of the distribution (./test does so)";

/// The options of a private RabbitMQ.
#[derive(Clone, Debug, Default)]
pub struct RabbitMqOptions {
    /// Serves the management API, with figures that are renewed every second. The start then takes about two seconds longer.
    pub management: bool,
    /// More users with full rights: name and password.
    pub users: Vec<(String, String)>,
    /// More lines of `rabbitmq.conf`: name and value as written there.
    pub settings: Vec<(String, String)>,
    /// The certificate and key to serve TLS with as well, both PEM.
    pub tls: Option<(String, String)>,
}

/// A private RabbitMQ on a free port of the loopback: administrator [`USER`](Self::USER) with the password [`PASSWORD`](Self::PASSWORD), virtual host
/// `/`. Dropping it ends the server and removes its data.
#[derive(Debug)]
pub struct RabbitMq {
    // Stands before the directories, because fields are dropped in order.
    keeper: Option<Keeper>,
    mapper: Option<Keeper>,
    directory: Directory,
    mapper_directory: Directory,
    programs: Programs,
    ports: Ports,
    options: RabbitMqOptions,
}

#[derive(Debug)]
struct Programs {
    server: String,
    mapper: String,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    amqp: u16,
    amqps: u16,
    management: u16,
    mapper: u16,
    node: u16,
}

impl RabbitMq {
    /// The administrator, with full rights on every virtual host.
    pub const USER: &str = "throng";
    /// The administrator's password.
    pub const PASSWORD: &str = "a-secret-of-the-tests";

    /// Starts a new server and waits until it takes connections.
    ///
    /// # Errors
    /// The programs are missing, or one of them failed.
    pub fn start(options: RabbitMqOptions) -> Result<Self, Error> {
        // The one on the `PATH` is a wrapper that always uses the system's own directories.
        let server = programs::find(&["rabbitmq-server"], &["/usr/lib/rabbitmq/bin".into()], INSTALL)?;
        let mapper = programs::find(&["epmd"], &[], INSTALL)?;
        let user = User::unprivileged(&["rabbitmq"]);
        let mut broker = Self {
            keeper: None,
            mapper: None,
            directory: Directory::create("throng-rabbitmq-", user, None)?,
            mapper_directory: Directory::create("throng-epmd-", user, None)?,
            programs: Programs {
                server: server.join("rabbitmq-server").display().to_string(),
                mapper: mapper.join("epmd").display().to_string(),
            },
            ports: Ports {
                amqp: free_port()?,
                amqps: free_port()?,
                management: free_port()?,
                mapper: free_port()?,
                node: free_port()?,
            },
            options,
        };
        broker.configure()?;
        broker.start_mapper()?;
        broker.resume()?;
        Ok(broker)
    }

    /// Returns its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// Returns its URL with the administrator's name and password.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(Self::USER, Self::PASSWORD)
    }

    /// Returns its URL with a user's name and password.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}", self.ports.amqp)
    }

    /// Returns its TLS URL with the administrator's name and password. It serves TLS only if it has a certificate.
    #[must_use]
    pub fn tls_url(&self) -> String {
        let (user, password, port) = (Self::USER, Self::PASSWORD, self.ports.amqps);
        format!("amqps://{user}:{password}@localhost:{port}")
    }

    /// Returns the address of its management API, if the options ask for it.
    #[must_use]
    pub fn management(&self) -> String {
        format!("127.0.0.1:{}", self.ports.management)
    }

    /// Ends the server. Its durable data stays for [`resume`](Self::resume). Does nothing if it was stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop(match how {
                Stop::Fast => "TERM",
                Stop::Immediate => "KILL",
            });
        }
    }

    /// Starts it again with its data on the same ports, and waits until it takes connections.
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn resume(&mut self) -> Result<(), Error> {
        let keeper = Keeper::start(&self.directory, "KILL", &self.command())?;
        let keeper = self.keeper.insert(keeper);
        let ports = self.ports;
        let mut wanted = vec![ports.amqp];
        wanted.extend(self.options.management.then_some(ports.management));
        wanted.extend(self.options.tls.is_some().then_some(ports.amqps));
        until_ready("rabbitmq-server", keeper, &self.directory, || {
            wanted.iter().all(|port| takes_connections(*port))
        })
    }

    /// Does [`stop`](Self::stop), then [`resume`](Self::resume).
    ///
    /// # Errors
    /// The server failed with this text.
    pub fn restart(&mut self, how: Stop) -> Result<(), Error> {
        self.stop(how);
        self.resume()
    }

    /// Returns the id of its process, for measuring what it uses.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.directory.process_id()
    }

    /// Returns the end of its log, for a failed test.
    #[must_use]
    pub fn log(&self) -> String {
        self.directory.log()
    }

    fn start_mapper(&mut self) -> Result<(), Error> {
        let port = self.ports.mapper;
        let number = port.to_string();
        let command = [&*self.programs.mapper, "-port", &*number, "-address", "127.0.0.1"].map(str::to_owned);
        let keeper = self
            .mapper
            .insert(Keeper::start(&self.mapper_directory, "KILL", &command)?);
        until_ready("epmd", keeper, &self.mapper_directory, || takes_connections(port))
    }

    /// Runs a command of `rabbitmqctl` on it and returns the output.
    ///
    /// # Errors
    /// The program is missing, or failed with this text.
    pub fn control(&self, arguments: &[&str]) -> Result<String, Error> {
        let program = "rabbitmqctl";
        let mut command = Command::new(Path::new(&self.programs.server).with_file_name(program));
        command
            .args(arguments)
            .envs(self.variables())
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        let done = User::of(self.directory.user, &mut command).output();
        let done = done.map_err(Error::io(format!("starting {program}")))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(Error::Failed {
                program,
                said: String::from_utf8_lossy(&done.stderr).trim().replace('\n', " | "),
            }),
        }
    }

    fn command(&self) -> Vec<String> {
        let variables = self.variables();
        let variables = variables.iter().map(|(name, value)| format!("{name}={value}"));
        let mut command = vec!["/usr/bin/env".to_owned()];
        command.extend(variables);
        command.push(self.programs.server.clone());
        command
    }

    fn variables(&self) -> [(&'static str, String); 15] {
        let home = self.directory.path().display();
        let Ports { mapper, node, .. } = self.ports;
        let arguments = "-noinput +S 1:1 -kernel inet_dist_use_interface {127,0,0,1}";
        [
            ("HOME", home.to_string()),
            ("ERL_EPMD_PORT", mapper.to_string()),
            ("RABBITMQ_NODENAME", format!("throng{node}@localhost")),
            ("RABBITMQ_DIST_PORT", node.to_string()),
            ("RABBITMQ_MNESIA_BASE", format!("{home}/mnesia")),
            ("RABBITMQ_LOG_BASE", format!("{home}/logs")),
            ("RABBITMQ_LOGS", "-".into()),
            ("RABBITMQ_CONFIG_FILE", format!("{home}/rabbitmq.conf")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", format!("{home}/none.config")),
            ("RABBITMQ_CONF_ENV_FILE", format!("{home}/none.conf")),
            ("RABBITMQ_GENERATED_CONFIG_DIR", format!("{home}/generated")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{home}/enabled_plugins")),
            ("RABBITMQ_PID_FILE", format!("{home}/rabbitmq.pid")),
            // The script then replaces itself with the server, so that signals reach the server.
            ("RABBITMQ_ALLOW_INPUT", "true".into()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments.into()),
        ]
    }

    fn configure(&self) -> Result<(), Error> {
        let (
            Ports {
                amqp,
                amqps,
                management,
                ..
            },
            options,
        ) = (self.ports, &self.options);
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name} = {value}").expect("a string takes any text");
        };
        line("listeners.tcp.1", &format!("127.0.0.1:{amqp}"));
        line("default_user", Self::USER);
        line("default_pass", Self::PASSWORD);
        line("log.console", "true");
        line("log.console.level", "warning");
        line("log.file", "false");
        line("disk_free_limit.absolute", "50MB");
        if options.management {
            line("management.tcp.ip", "127.0.0.1");
            line("management.tcp.port", &management.to_string());
            line("collect_statistics_interval", "1000");
            // The figures shown are of the finest of these. The default is every five seconds.
            for policy in ["global.minute", "basic.minute", "detailed.10"] {
                line(&format!("management.sample_retention_policies.{policy}"), "1");
            }
        }
        let home = self.directory.path().display();
        if !options.users.is_empty() {
            line("load_definitions", &format!("{home}/definitions.json"));
        }
        if options.tls.is_some() {
            line("listeners.ssl.1", &format!("127.0.0.1:{amqps}"));
            line("ssl_options.certfile", &format!("{home}/server.crt"));
            line("ssl_options.keyfile", &format!("{home}/server.key"));
            line("ssl_options.verify", "verify_none");
        }
        for (name, value) in &options.settings {
            line(name, value);
        }
        let write = |name: &str, text: &str| self.directory.secret(Path::new(name), text);
        if let Some((certificate, key)) = &options.tls {
            write("server.crt", certificate)?;
            write("server.key", key)?;
        }
        if !options.users.is_empty() {
            write("definitions.json", &definitions(&options.users))?;
        }
        write("rabbitmq.conf", &text)?;
        let plugins = if options.management { "rabbitmq_management" } else { "" };
        write("enabled_plugins", &format!("[{plugins}]."))
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        // The shells end the server and its port mapper, and remove the directories. Their own drop removes what is left.
        self.keeper = None;
        self.mapper = None;
    }
}

/// Returns the users as the broker reads them at its start, in JSON. The administrator is among them, because otherwise the broker would not create
/// it.
fn definitions(users: &[(String, String)]) -> String {
    let administrator = (RabbitMq::USER.to_owned(), RabbitMq::PASSWORD.to_owned());
    let all = || std::iter::once(&administrator).chain(users);
    let join = |parts: Vec<String>| parts.join(",");
    let user = |(name, password): &(String, String)| {
        format!(r#"{{"name":{name:?},"password":{password:?},"tags":"administrator"}}"#)
    };
    let permission = |(name, _): &(String, String)| {
        format!(r#"{{"user":{name:?},"vhost":"/","configure":".*","write":".*","read":".*"}}"#)
    };
    format!(
        r#"{{"users":[{}],"vhosts":[{{"name":"/"}}],"permissions":[{}]}}"#,
        join(all().map(user).collect()),
        join(all().map(permission).collect()),
    )
}
