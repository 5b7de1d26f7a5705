/**
 * What this copy of the UI is attached to, and whether the gateway is well: the dot at the top of the rail.
 */
import { computed } from "@preact/signals";
import { getJson, getText } from "./api.ts";
import { awaySince, isSignedOut } from "./connection.ts";
import { dump } from "./dump.ts";
import { createPoll } from "./poll.ts";

export interface About {
  readonly version: string;
  readonly host: string;
  readonly node: string;
  readonly platform: string;
  /** Attached to a gateway: no playgrounds, traces, profiles or configuration text. */
  readonly readOnly: boolean;
  /** Whether the user may end sessions, make keys and set the log level. */
  readonly mayOperate: boolean;
  /** Whether the configuration file may be written from the page. */
  readonly mayEdit: boolean;
  /** Who signed in, on a gateway. */
  readonly user?: string;
  /** Where a POST signs out, if the user signed in with the browser. */
  readonly logoutPath?: string;
}

const ABOUT_INTERVAL_MS = 60_000;
/** A gateway that went away is shown within two seconds. */
const READY_INTERVAL_MS = 1_000;
/** One that is back is asked at once for everything that the page shows. */
const AWAY_INTERVAL_MS = 250;
/** One that accepts connections and says nothing has gone away too. */
const READY_PATIENCE_MS = 5_000;

export const about = createPoll(() => getJson<About>("about"), ABOUT_INTERVAL_MS);
export const ready = createPoll(
  () => getText("healthz/ready", AbortSignal.timeout(READY_PATIENCE_MS)),
  () => (awaySince.peek() === undefined ? READY_INTERVAL_MS : AWAY_INTERVAL_MS),
);

export interface State {
  readonly level: "ok" | "warn" | "bad" | "idle";
  readonly text: string;
}

export const state = computed<State>(() => {
  if (awaySince.value !== undefined) return { level: "bad", text: "not responding" };
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

/** Playgrounds, traces and the configuration text are offered on the admin address only. */
export const isReadOnly = computed(() => about.value.value?.readOnly ?? false);

/** The server refuses what is hidden, too. */
export const mayOperate = computed(() => about.value.value?.mayOperate ?? false);
