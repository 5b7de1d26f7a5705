/**
 * A new configuration meets a session that lives: servers that are defined as before stay with all they know, one
 * that is defined anew takes the place of the old one, as after a restart, and those that are gone are left.
 */

import type { Target } from "../server-side/target.ts";
import type { Upstream } from "../server-side/upstream.ts";
import type { Names } from "./names.ts";

export interface TargetChange {
  /** Those that are defined as before are the same objects as before. */
  readonly targets: readonly Target[];
  readonly names: Names;
}

/** Makes a target part of a session that is open already; `before` is what had its name. */
export type LateUpstream = (target: Target, before: Upstream | undefined) => Upstream;

export interface ChangedUpstreams {
  readonly next: readonly Upstream[];
  /** To be closed when their calls are done. */
  readonly left: readonly Upstream[];
}

/** Undefined if nothing changes for these. */
export function changedUpstreams(
  current: readonly Upstream[],
  targets: readonly Target[],
  takesNew: boolean,
  late: LateUpstream,
): ChangedUpstreams | undefined {
  const next: Upstream[] = [];
  for (const target of targets) {
    const before = current.find((upstream) => upstream.target.name === target.name);
    if (before?.target === target) next.push(before);
    else if (before || takesNew) next.push(late(target, before));
  }
  const left = current.filter((upstream) => !next.includes(upstream));
  const isSame = left.length === 0 && next.length === current.length && next.every((one, i) => one === current[i]);
  return isSame ? undefined : { next, left };
}
