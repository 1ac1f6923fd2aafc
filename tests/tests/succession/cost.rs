//! What a move costs while the guest stands still, by how many nodes it knows. A measurement, no test:
//! `cargo test --release -p thrufs-tests --test succession -- --ignored --nocapture cost`.

use crate::ground::{Server, Way, config_for, mounted};
use std::fs;
use std::time::{Duration, Instant};
use thrufs::NodeId;
use thrufs_hostdir::{Migration, MigrationMode};
use thrufs_tests::lower::{Ground, Lower};

/// Files in a directory.
const TOGETHER: usize = 100;
const ROUNDS: usize = 5;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_move_by_nodes() {
    println!("lower  way      nodes    state KiB  save ms  restore ms");
    for lower in [Lower::Default, Lower::Tmpfs] {
        for nodes in [1_000, 10_000, 30_000] {
            let ground = Ground::prepare(lower).unwrap();
            let source = ground.source();
            for directory in 0..nodes / TOGETHER {
                let path = source.join(format!("directory-{directory}"));
                fs::create_dir(&path).unwrap();
                for file in 0..TOGETHER {
                    fs::write(path.join(format!("some-file-{file}")), "").unwrap();
                }
            }
            for way in [Way::Paths, Way::Handles] {
                let server = Server::new(source, config_for(way));
                let client = mounted(&server);
                let root = client.root();
                for directory in 0..nodes / TOGETHER {
                    let name = format!("directory-{directory}");
                    let found = root.lookup(NodeId::ROOT, name.as_bytes()).unwrap();
                    for file in 0..TOGETHER {
                        let name = format!("some-file-{file}");
                        root.lookup(NodeId(found.nodeid), name.as_bytes()).unwrap();
                    }
                }
                let (mut saves, mut restores, mut bytes) = (Vec::new(), Vec::new(), 0);
                for _ in 0..ROUNDS {
                    let begun = Instant::now();
                    let state = server.saved().unwrap();
                    saves.push(begun.elapsed());
                    let mode = match way {
                        Way::Handles => MigrationMode::FileHandles,
                        _ => MigrationMode::FindPaths,
                    };
                    let migration = Migration {
                        mode,
                        ..Migration::default()
                    };
                    bytes = state.len();
                    let begun = Instant::now();
                    server.restored(source, migration, &state).unwrap();
                    restores.push(begun.elapsed());
                }
                let ms = |times| median(times).as_secs_f64() * 1000.0;
                println!(
                    "{:<6} {:<8} {nodes:<8} {:<10} {:<8.1} {:.1}",
                    lower.name(),
                    format!("{way:?}"),
                    bytes / 1024,
                    ms(saves),
                    ms(restores)
                );
            }
        }
    }
}
