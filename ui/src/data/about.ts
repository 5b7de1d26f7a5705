/**
 * The gateway that this copy of the UI is attached to, and its health: the status dot at the top of the rail.
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
  /** True if the UI is attached to a gateway: no playgrounds, traces, profiles or configuration text. */
  readonly readOnly: boolean;
  /** True if the user may end sessions, create keys and set the log level. */
  readonly mayOperate: boolean;
  /** True if the page may write the configuration file. */
  readonly mayEdit: boolean;
  /** The signed-in user, on a gateway. */
  readonly user?: string;
  /** The path for a POST that signs out, if the user signed in with the browser. */
  readonly logoutPath?: string;
}

const ABOUT_INTERVAL_MS = 60_000;
/** Shows an unavailable gateway within two seconds. */
const READY_INTERVAL_MS = 1_000;
/** Detects quickly that the gateway is available again; all data is then refreshed at once. */
const UNAVAILABLE_INTERVAL_MS = 250;
/** The timeout after which a gateway that accepts connections but does not respond counts as unavailable. */
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

/** True if the UI is not on the admin address, which alone offers playgrounds, traces and the configuration text. */
export const isReadOnly = computed(() => about.value.value?.readOnly ?? false);

/** Hides controls only; the server also enforces the permission. */
export const mayOperate = computed(() => about.value.value?.mayOperate ?? false);
