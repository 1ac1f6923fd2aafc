//! Objects of a slow store as files, on tokio: `cargo run -p thrufs-async --example store -- MOUNTPOINT`, until it is
//! unmounted.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thrufs::{
    Attr, Attributes, DirectorySink, Entry, Errno, FileHandle, MountOptions, NewNode, NodeId,
    ReadArgs, Result, SessionConfig, WriteArgs, mount,
};
use thrufs_async::{Async, AsyncFileSystem, Context};

/// Others write to the store as well: the kernel asks again.
const VALID: Duration = Duration::ZERO;

/// What would be the client of a store over a network: each answer takes its time.
#[derive(Default)]
pub struct Store {
    /// How long each answer takes.
    pub latency: Duration,
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Store {
    async fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        tokio::time::sleep(self.latency).await;
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
    async fn change<T>(&self, key: &str, change: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let mut objects = self.objects().await;
        objects.get_mut(key).map(change).ok_or(Errno::ENOENT)
    }
}

/// One directory. The nodes of its files are the places of their keys, after the root's.
#[derive(Default)]
pub struct ObjectFs {
    /// The client.
    pub store: Store,
    keys: Mutex<Vec<String>>,
}

impl ObjectFs {
    fn node(&self, key: &str) -> u64 {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let place = keys.iter().position(|known| known == key);
        2 + place.unwrap_or_else(|| {
            keys.push(key.to_owned());
            keys.len() - 1
        }) as u64
    }
    fn key(&self, node: NodeId) -> Result<String> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let place = node.0.checked_sub(2).ok_or(Errno::EISDIR)?;
        keys.get(place as usize).cloned().ok_or(Errno::ESTALE)
    }
    async fn attr(&self, key: &str) -> Result<Attr> {
        let size = self.store.change(key, |object| object.len() as u64);
        Ok(Attr::file(self.node(key), size.await?))
    }
}

fn text(name: OsString) -> Result<String> {
    name.into_string().map_err(|_| Errno::EINVAL)
}

#[rustfmt::skip]
impl AsyncFileSystem for ObjectFs {
    type Data = Vec<u8>;

    async fn lookup(&self, _: Context, _parent: NodeId, name: OsString) -> Result<Entry> {
        Ok(Entry::new(self.attr(&text(name)?).await?, VALID))
    }
    async fn getattr(&self, _: Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        let attr = match node {
            NodeId::ROOT => Attr::directory(1),
            node => self.attr(&self.key(node)?).await?,
        };
        Ok(Attributes { attr, timeout: VALID })
    }
    // Files need no open (the default of `open` says so): one is made, then used.
    async fn mknod(&self, _: Context, _parent: NodeId, name: OsString, _: NewNode) -> Result<Entry> {
        let key = text(name)?;
        self.store.objects().await.entry(key.clone()).or_default();
        Ok(Entry::new(self.attr(&key).await?, VALID))
    }
    async fn read(&self, context: Context, node: NodeId, args: ReadArgs, size: usize) -> Result<Vec<u8>> {
        let (key, start) = (self.key(node)?, args.offset as usize);
        let part = |object: &mut Vec<u8>| object.iter().skip(start).take(size).copied().collect();
        // A program that is killed need not wait for the store.
        context.interruptible(self.store.change(&key, part)).await
    }
    async fn write(&self, _: Context, node: NodeId, args: WriteArgs, data: Vec<u8>) -> Result<usize> {
        let (key, start, end) = (self.key(node)?, args.offset as usize, args.offset as usize + data.len());
        self.store.change(&key, |object| {
            object.resize(object.len().max(end), 0);
            object[start..end].copy_from_slice(&data);
        }).await?;
        Ok(data.len())
    }
    async fn readdir(&self, _: Context, _: NodeId, _: FileHandle, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()> {
        for (next, key) in (1..).zip(self.store.objects().await.keys()).skip(offset as usize) {
            if !sink.entry(self.node(key), next, 0, key.as_bytes()) { break; }
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: store MOUNTPOINT")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut fs = ObjectFs::default();
    fs.store.latency = Duration::from_millis(5);
    let (options, tasks) = (MountOptions::new("store"), runtime.handle().clone());
    let fs = Async::new(Arc::new(fs), move |task| drop(tasks.spawn(task)));
    mount(fs, target, &options, SessionConfig::default())?.join()?;
    Ok(())
}
