//! `images load`: the bundle's images into the node's containerd.

use std::path::PathBuf;
use std::time::Duration;

use quantykube_base::{Exit, Failure, Unit, human_bytes, parse_time};
use quantykube_oci::{Listed, Reference};
use serde_json::{Value, json};

use crate::args::Which;
use crate::commands::bundle::{self, Meant};
use crate::commands::{Context, layout};
use crate::containerd::{Containerd, Had};

/// What is to be done with the images.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Put the images of a bundle into the node's containerd, where the kubelet finds them. What is there already stays.
    Load {
        /// The folder that was extracted from a bundle; else the one that this program stands in.
        folder: Option<PathBuf>,
        /// Where containerd listens.
        #[arg(long, value_name = "SOCKET", default_value = "/run/containerd/containerd.sock")]
        address: PathBuf,
        /// How long containerd may be silent, such as 90s or 10m.
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_time)]
        timeout: Duration,
        #[command(flatten)]
        meant: Which,
    },
}

/// `images load`, checked.
#[derive(Debug)]
pub struct Load {
    folder: Option<PathBuf>,
    address: PathBuf,
    timeout: Duration,
    meant: Meant,
}

impl Args {
    /// What can be said of it without looking at the node.
    pub fn check(self) -> Result<Load, Failure> {
        let What::Load {
            folder,
            address,
            timeout,
            meant,
        } = self.what;
        Ok(Load {
            folder,
            // ctr takes no other.
            address: std::path::absolute(&address).unwrap_or(address),
            timeout,
            meant: meant.check()?,
        })
    }
}

/// What became of one image.
#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// It was there, with all its content.
    Already,
    /// It was not.
    Loaded,
    /// The name stood for another image, or not all of it was there.
    Replaced(Had),
}

/// Verifies the bundle, asks which images are there, loads the others one by one, and asks again.
pub fn run(context: &Context, load: &Load) -> Result<Exit, Failure> {
    let (verified, _, images) = bundle::verify_images(context, load.folder.as_deref(), &load.meant)?;
    let root = verified.root().ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "not-extracted",
            "images are loaded from an extracted bundle",
        )
        .hint("extract the bundle (tar xzf FILE) and call ./run in its folder")
    })?;
    if images.is_empty() {
        let value = json!({"what": "images load", "changed": false, "images": []});
        context.reporter.result("this bundle holds no images", value);
        return Ok(Exit::Done);
    }
    let mut names = Vec::new();
    for image in &images {
        names.push(name(image)?);
    }
    let bundled = verified.file("bin/ctr").map(|_| root.join("bin/ctr"));
    let containerd = Containerd::find(bundled, &load.address, load.timeout)?;
    let before = containerd.list(&names)?;
    let layout = root.join(layout::FOLDER);
    let mut states = Vec::new();
    for image in &images {
        let state = state(image, before.get(&image.name));
        if state != State::Already {
            let loaded = one(context, &containerd, &layout, image).and_then(|()| is_there(&containerd, image));
            if let Err(failure) = loaded {
                let touched = may_be_touched(&containerd, image, before.get(&image.name));
                return Err(in_the_middle(failure, &states, images.len(), touched));
            }
        }
        let (name, message) = tell(image, &state);
        context.reporter.step(name, &message);
        states.push(state);
    }
    let loaded = loaded(&states);
    let text = format!(
        "{} images in containerd at {}: {loaded} loaded, {} there already",
        images.len(),
        load.address.display(),
        images.len() - loaded
    );
    let rows: Vec<Value> = images
        .iter()
        .zip(&states)
        .map(|(image, state)| row(image, state))
        .collect();
    let value = json!({"what": "images load", "changed": loaded > 0, "images": rows});
    context.reporter.result(&text, value);
    Ok(Exit::Done)
}

/// A name that a runtime knows, in full: it is an argument of `ctr`.
fn name(image: &Listed) -> Result<&str, Failure> {
    match Reference::parse(&image.name) {
        Ok(reference) if reference.to_string() == image.name => Ok(&image.name),
        _ => Err(Failure::new(
            Exit::NotVerified,
            "image",
            format!("{:?} is no full name of an image", image.name),
        )),
    }
}

fn state(image: &Listed, had: Option<&Had>) -> State {
    match had {
        None => State::Loaded,
        Some(had) if had.complete && had.digest == image.digest.to_string() => State::Already,
        Some(had) => State::Replaced(had.clone()),
    }
}

fn loaded(states: &[State]) -> usize {
    states.iter().filter(|state| **state != State::Already).count()
}

fn one(context: &Context, containerd: &Containerd, layout: &std::path::Path, image: &Listed) -> Result<(), Failure> {
    let total = image.blobs.values().sum();
    let mut progress = context
        .reporter
        .progress(&format!("loading {}", image.name), Unit::Bytes, Some(total));
    containerd.import(layout, image, &mut |done| progress.set(done, ""))?;
    progress.finish();
    Ok(())
}

/// What containerd says counts, not how its program ended.
fn is_there(containerd: &Containerd, image: &Listed) -> Result<(), Failure> {
    let now = containerd.list(&[&image.name])?;
    match state(image, now.get(&image.name)) {
        State::Already => Ok(()),
        _ => {
            let found = match now.get(&image.name) {
                None => "it does not know the name".to_owned(),
                Some(had) if had.complete => format!("the name stands for {}", had.digest),
                Some(had) => format!("it has only a part of {}", had.digest),
            };
            let message = format!("containerd took the image {} and does not have it", image.name);
            Err(Failure::new(Exit::Failed, "load", message).because(format!("{found}, expected {}", image.digest)))
        }
    }
}

/// Whether an image whose loading failed may be another one under its name than before: containerd says so, or cannot say.
fn may_be_touched(containerd: &Containerd, image: &Listed, before: Option<&Had>) -> bool {
    let now = containerd.list(&[&image.name]);
    now.map_or(true, |now| now.get(&image.name) != before)
}

/// What was loaded before stays: it is whole, and calling again goes on from there. `touched`: the one that failed may have
/// changed what is there, too.
fn in_the_middle(failure: Failure, before: &[State], all: usize, touched: bool) -> Failure {
    let (done, loaded) = (before.len(), loaded(before));
    let message = format!(
        "{}; {done} of {all} images are there, {loaded} of them loaded now",
        failure.message
    );
    let exit = match (loaded, touched) {
        (0, false) => Exit::Failed,
        _ => Exit::Interrupted,
    };
    Failure {
        message,
        exit,
        ..failure
    }
    .hint("what is there stays; after the cure ./run images load goes on from here")
}

fn tell(image: &Listed, state: &State) -> (&'static str, String) {
    let (name, digest) = (&image.name, image.digest);
    match state {
        State::Already => ("image-there", format!("there already  {name}  {digest}")),
        State::Loaded => {
            let size = human_bytes(image.blobs.values().sum());
            ("image-loaded", format!("loaded         {name}  {digest}  {size}"))
        }
        State::Replaced(had) if had.complete => (
            "image-replaced",
            format!("replaced       {name}  {digest}  the name stood for {}", had.digest),
        ),
        State::Replaced(_) => ("image-replaced", format!("completed      {name}  {digest}")),
    }
}

fn row(image: &Listed, state: &State) -> Value {
    let (word, was) = match state {
        State::Already => ("already", None),
        State::Loaded => ("loaded", None),
        State::Replaced(had) => ("replaced", Some(&had.digest)),
    };
    json!({
        "name": image.name,
        "digest": image.digest.to_string(),
        "state": word,
        "was": was,
        "bytes": image.blobs.values().sum::<u64>(),
    })
}
