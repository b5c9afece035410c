//! The loom models. Each says what it shows, with how many lanes, and to what bound.
#![cfg(loom)]

mod loom {
    mod barrier;
    mod hand_over;
    mod node;
    mod steps;
    mod word;
}
