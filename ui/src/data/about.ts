/**
 * Identifies the gateway that serves this page, and derives its state for the status in the rail.
 */
import { computed } from "@preact/signals";
import { getJson, getText } from "./api.ts";
import { isSignedOut, unavailableSince } from "./connection.ts";
import { dump } from "./dump.ts";
import { createPoll } from "./poll.ts";

export interface About {
  readonly version: string;
  readonly host: string;
  readonly node: string;
  readonly platform: string;
  /**
   * True if a gateway listener serves the page. Playgrounds, traces, profiles, and the configuration text are then
   * unavailable.
   */
  readonly readOnly: boolean;
  /** True if the user may end sessions, create keys, and set the log level. */
  readonly mayOperate: boolean;
  readonly mayEdit: boolean;
  /** True if the documentation is served beside this page. */
  readonly hasDocs: boolean;
  readonly user?: string;
  /** A POST to this path signs out a user who signed in with the browser. */
  readonly logoutPath?: string;
}

const ABOUT_INTERVAL_MS = 60_000;
const READY_INTERVAL_MS = 1_000;
/** A short interval detects quickly that the gateway is back. */
const UNAVAILABLE_INTERVAL_MS = 250;
/** A gateway that accepts connections but does not respond within this time counts as unavailable. */
const READY_TIMEOUT_MS = 5_000;

export const about = createPoll(() => getJson<About>("about"), ABOUT_INTERVAL_MS);
export const ready = createPoll(
  () => getText("healthz/ready", AbortSignal.timeout(READY_TIMEOUT_MS)),
  () => (unavailableSince.peek() === undefined ? READY_INTERVAL_MS : UNAVAILABLE_INTERVAL_MS),
);

export interface State {
  readonly level: "ok" | "warn" | "bad" | "idle";
  readonly text: string;
}

export const state = computed<State>(() => {
  if (unavailableSince.value !== undefined) return { level: "bad", text: "not responding" };
  if (isSignedOut.value) return { level: "idle", text: "signed out" };
  const failure = ready.error.value ?? dump.error.value;
  if (failure !== undefined) return { level: "bad", text: "not responding" };
  const readiness = ready.value.value?.trim();
  if (readiness === undefined || dump.value.value === undefined) return { level: "idle", text: "connecting" };
  if (readiness !== "ready") {
    const pending = readiness.replace(/^not ready, pending: /, "");
    return { level: "bad", text: pending === "draining" ? "draining" : `not ready: ${pending}` };
  }
  if (dump.value.value.reload.refused) return { level: "warn", text: "last reload rejected" };
  return { level: "ok", text: "serving" };
});

export const isReadOnly = computed(() => about.value.value?.readOnly ?? false);

/** The value only hides controls. The server enforces the permission. */
export const mayOperate = computed(() => about.value.value?.mayOperate ?? false);
