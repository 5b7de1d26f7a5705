/**
 * Whoever holds servers: a session of the legacy era, or the lane of modern clients that share an identity. The
 * store counts them together and ends those that nobody uses.
 */
import type { Linked } from "../../base/linked-list.ts";
import type { Upstream } from "./upstream.ts";

export interface Tenant {
  readonly lastUsedMs: number;
  /** Nobody is connected and nothing runs. */
  readonly isIdle: boolean;
  readonly upstreams: readonly Upstream[];
  sweep(nowMs: number): void;
  /** `isForGood` false: its client may go on with it, here or in another process. Default: true. */
  end(reason: string, isForGood?: boolean): void;
  detail(): Record<string, unknown>;
}

/** Whether its end would end a process. */
export function holdsChild({ upstreams }: Tenant): boolean {
  return upstreams.some((upstream) => upstream.holdsChild === true);
}

/** Something whose connection wants a sign of life now and then. */
export interface Beating extends Linked<Beating> {
  beat(nowMs: number): void;
  /** The gateway stops: ends what would stay open for ever. */
  drain?(): void;
}
