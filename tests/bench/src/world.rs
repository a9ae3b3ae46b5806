//! The server that is measured.

use crate::{Engine, Options, process};
use anyhow::Result;
use freehold_tests_harness::{Etcd, Options as ServerOptions, Server};
use std::ops::{Deref, DerefMut};
use tempfile::TempDir;

/// A server and, where it has one, its etcd.
pub(crate) struct World {
    // Before `etcd`: fields are dropped in this order.
    server: Server,
    etcd: Option<(Etcd, TempDir)>,
}

impl World {
    /// Starts a server on an empty data directory, with the logs that it has unless told otherwise.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let etcd = match options.engine {
            Engine::Embedded => None,
            Engine::Etcd => {
                let folder = tempfile::tempdir()?;
                Some((Etcd::start_durable(folder.path()), folder))
            }
        };
        let args = etcd.iter().flat_map(|(etcd, _)| ["--etcd".to_owned(), etcd.url()]).collect();
        let server =
            Server::start(ServerOptions { args, log: "warn".to_owned(), ..ServerOptions::default() });
        Ok(Self { server, etcd })
    }

    /// Bytes on disk of all that the server keeps, in its data directory and in its etcd.
    pub(crate) fn disk(&self) -> i64 {
        let etcd = self.etcd.as_ref().map_or(0, |(_, folder)| process::disk(folder.path()));
        process::disk(&self.server.data_dir()) + etcd
    }

    /// Waits until the server's memory rests, and reads it.
    pub(crate) async fn memory(&self, options: &Options, moment: &str) -> process::Memory {
        let memory = process::memory_at_rest(self.server.pid()).await;
        if options.maps {
            println!("    memory {moment}:");
            process::print_maps(self.server.pid());
        }
        memory
    }
}

impl Deref for World {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}
