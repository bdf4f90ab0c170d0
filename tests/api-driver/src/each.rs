//! Runs the same work on many things, a bounded number at a time.

use anyhow::Result;
use tokio::task::JoinSet;

/// Calls `work` on every item with at most `limit` running, and returns the results in the order of the items. The
/// first error ends it.
pub async fn each<T, R, F, Fut>(items: Vec<T>, limit: usize, work: F) -> Result<Vec<R>>
where
    R: Send + 'static,
    F: Fn(T) -> Fut,
    Fut: Future<Output = Result<R>> + Send + 'static,
{
    let mut running: JoinSet<(usize, Result<R>)> = JoinSet::new();
    let mut results: Vec<Option<R>> = Vec::new();
    let mut items = items.into_iter().enumerate();
    loop {
        while running.len() < limit {
            let Some((index, item)) = items.next() else { break };
            results.push(None);
            let future = work(item);
            running.spawn(async move { (index, future.await) });
        }
        match running.join_next().await {
            None => return Ok(results.into_iter().flatten().collect()),
            Some(done) => {
                let (index, result) = done?;
                results[index] = Some(result?);
            }
        }
    }
}
