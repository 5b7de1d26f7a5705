/**
 * Keeps the young generation of the heap small during the start. The objects of a start survive, so V8 would enlarge it to
 * its maximum, and it would stay resident while the gateway is idle.
 */
import { setFlagsFromString } from "node:v8";

export function limitYoungGeneration(): void {
  setFlagsFromString("--semi-space-growth-factor=1");
}

/** Restores V8's default, so that the young generation grows with the load. */
export function releaseYoungGeneration(): void {
  setFlagsFromString("--semi-space-growth-factor=2");
}
