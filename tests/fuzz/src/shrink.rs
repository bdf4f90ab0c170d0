//! Makes a list of steps that shows a difference as short and plain as it gets.

use serde_json::Value;

use crate::run::{Difference, Sides};
use crate::step::Step;

/// What shrinking ends with.
pub struct Shrunk {
    /// The steps that are left.
    pub steps: Vec<Step>,
    /// What they show.
    pub what: String,
    /// How many times steps were run for it.
    pub runs: usize,
    /// Whether they show it only on servers without any past.
    pub only_fresh: bool,
}

struct Shrinker<'a> {
    sides: &'a mut Sides,
    only_fresh: bool,
    runs: usize,
    runs_max: usize,
    best: Vec<Step>,
    what: String,
}

/// Shrinks; runs steps `runs_max` times at most. None if the difference does not come again.
pub async fn shrink(sides: &mut Sides, steps: &[Step], found: &Difference, runs_max: usize) -> Option<Shrunk> {
    let mut shrinker = Shrinker {
        sides,
        only_fresh: false,
        runs: 0,
        runs_max,
        best: steps[..(found.at + 1).min(steps.len())].to_vec(),
        what: found.what.clone(),
    };
    let whole = shrinker.best.clone();
    if !shrinker.tails(&whole).await {
        shrinker.only_fresh = true;
        if !shrinker.shows(&whole).await {
            return None;
        }
    }
    shrinker.chunks().await;
    shrinker.simplify().await;
    // What is left must not be about what stood there before.
    Some(Shrunk {
        steps: shrinker.best,
        what: shrinker.what,
        runs: shrinker.runs,
        only_fresh: shrinker.only_fresh,
    })
}

impl Shrinker<'_> {
    /// Runs a list; keeps it, cut where it shows a difference, if it does.
    async fn shows(&mut self, steps: &[Step]) -> bool {
        if self.runs >= self.runs_max {
            return false;
        }
        self.runs += 1;
        let ready = match self.only_fresh {
            true => self.sides.renew().await,
            false => self.sides.clear().await,
        };
        if ready.is_err() && self.sides.renew().await.is_err() {
            return false;
        }
        match self.sides.run(steps).await {
            Ok(_) => false,
            Err(difference) => {
                self.best = steps[..(difference.at + 1).min(steps.len())].to_vec();
                self.what = difference.what;
                // A server that ended is no use any more; a stream that failed neither.
                let _ = self.sides.clear().await;
                true
            }
        }
    }

    /// Most differences need only the last steps.
    async fn tails(&mut self, whole: &[Step]) -> bool {
        let mut length = 20;
        while length < whole.len() {
            if self.shows(&whole[whole.len() - length..]).await {
                return true;
            }
            length *= 4;
        }
        self.shows(whole).await
    }

    /// Takes out chunks, ever smaller ones, until no single step can go.
    async fn chunks(&mut self) {
        let mut size = (self.best.len() / 2).max(1);
        loop {
            let mut from = 0;
            let mut any = false;
            while from < self.best.len() {
                let mut without = self.best.clone();
                without.drain(from..(from + size).min(without.len()));
                if !without.is_empty() && self.shows(&without).await {
                    any = true;
                } else {
                    from += size;
                }
            }
            if size == 1 && !any || self.runs >= self.runs_max {
                return;
            }
            size = (size / 2).max(1);
        }
    }

    /// Takes out parts of steps: whatever of their JSON can go.
    async fn simplify(&mut self) {
        let mut any = true;
        while any && self.runs < self.runs_max {
            any = false;
            let mut at = 0;
            while at < self.best.len() {
                let value = serde_json::to_value(&self.best[at]).expect("a step is JSON");
                let mut shorter = Vec::new();
                without_one(&value, &mut |value| shorter.push(value));
                let mut changed = false;
                for value in shorter {
                    let Ok(step) = serde_json::from_value(value) else {
                        continue;
                    };
                    let mut list = self.best.clone();
                    list[at] = step;
                    if list != self.best && self.shows(&list).await {
                        (any, changed) = (true, true);
                        break;
                    }
                }
                if !changed {
                    at += 1;
                }
            }
        }
    }
}

/// All values that lack one member or element of this one, the outermost first.
fn without_one(value: &Value, tell: &mut dyn FnMut(Value)) {
    match value {
        Value::Object(members) => {
            for name in members.keys() {
                let mut less = members.clone();
                less.remove(name);
                tell(Value::Object(less));
            }
            for (name, inner) in members {
                without_one(inner, &mut |inner| {
                    let mut less = members.clone();
                    less.insert(name.clone(), inner);
                    tell(Value::Object(less));
                });
            }
        }
        Value::Array(elements) => {
            for at in 0..elements.len() {
                let mut less = elements.clone();
                less.remove(at);
                tell(Value::Array(less));
            }
            for (at, inner) in elements.iter().enumerate() {
                without_one(inner, &mut |inner| {
                    let mut less = elements.clone();
                    less[at] = inner;
                    tell(Value::Array(less));
                });
            }
        }
        _ => {}
    }
}
