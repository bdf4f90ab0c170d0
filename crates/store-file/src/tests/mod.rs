//! Tests of the whole. `world` is the judge they share: a plain map of all history, and a random client.

mod basic;
mod crash;
mod damage;
mod forged;
mod full;
mod hold;
mod model;
mod verify;
mod world;
