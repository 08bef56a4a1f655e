//! One attempt against receivers that misbehave in every way.
