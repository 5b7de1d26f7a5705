/**
 * Decides whether a request to a provider is free, is charged by its usage, or has a cost that nobody reports. Only
 * endpoints that this table lists as free are free: an endpoint that is missing costs money.
 */
import { alternativePaths, mayBeAmbiguous } from "../../http/request-path.ts";
import type { Dialect } from "./dialect.ts";

/**
 * `metered` is charged the usage that the response reports, or an estimate of the texts. `unmetered` may cost money, but
 * neither the request nor its response shows how much, as for batches, videos, and WebSockets.
 */
export type Cost = "free" | "metered" | "unmetered";

export interface CostedRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly isUpgrade: boolean;
}

const READS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS", "DELETE"]);

/** Paths are compared in lower case. `*` matches one segment. */
const FREE: Readonly<Record<string, readonly string[]>> = {
  POST: [
    ...["files", "files:register", "uploads", "uploads/*/parts", "uploads/*/complete", "uploads/*/cancel"],
    ...["batches/*/cancel", "messages/batches/*/cancel", "responses/*/cancel", "filesearchstores"],
    ...["assistants", "assistants/*", "threads", "threads/*", "threads/*/messages", "threads/*/messages/*"],
    ...["threads/*/runs/*", "threads/*/runs/*/cancel", "conversations/*/items", "containers/*/files"],
    ...["vector_stores/*/files/*", "vector_stores/*/file_batches/*/cancel"],
    ...["evals", "evals/*", "evals/*/runs/*", "evals/*/runs/*/cancel", "skills", "skills/*", "skills/*/versions"],
    ...["fine_tuning/jobs/*/cancel", "fine_tuning/jobs/*/pause", "fine_tuning/checkpoints/*/permissions"],
    "fine_tuning/alpha/graders/validate",
  ],
  PUT: ["files"],
};
/** A pattern of `FREE` would match it too. */
const UNMETERED: readonly string[] = ["threads/runs"];
/** Mistral runs a model for each of its conversations. Those of OpenAI report no usage. */
const METERED: readonly string[] = ["cachedcontents", "conversations", "conversations/*", "conversations/*/restart"];
const STORES: ReadonlySet<string> = new Set([
  ...["files", "uploads", "batches", "cachedcontents", "filesearchstores", "operations", "vector_stores"],
  ...["fine_tuning", "assistants", "threads", "conversations", "containers", "evals", "videos", "skills"],
]);
const READ_ROOTS: ReadonlySet<string> = new Set([
  ...STORES,
  ...["models", "tunedmodels", "responses", "chat", "completions", "messages", "interactions", "organization"],
]);
/** Matches jobs and sessions of providers that a `host` backend may reach. */
const JOBS =
  /(?:^|\/)(?:batch\/jobs|video\/generations|batchpredictionjobs|tuningjobs|async-invoke|model-(?:invocation|customization)-jobs?|embed-jobs|finetuning|fine[-_]tunes|tunedmodels$|guardrail\/|retrieveandgenerate|(?:batches|runs|videos|jobs)$)/;
const SOCKETS = /(?:^|\/)(?:realtime(?:\/|$)|ws\/google\.ai\.generativelanguage\.)/;
const VERSION = /(?:^|\/)(?:v1|v1beta)\//g;
/** Google's servers and some frameworks read the method from the query. */
const METHOD_OVERRIDE = /(?:^|[&;])\$?(?:http_?(?:method|headers)|_method|x-(?:http-)?method(?:-override)?)=/i;

/** Returns undefined if the endpoint is not listed. */
export function listedCost(request: CostedRequest, { operation, pathModel }: Dialect): Cost | undefined {
  const { method, path, query, isUpgrade } = request;
  const isCall = operation === "call" || operation === "count" || operation === "job";
  if (isUpgrade) return isCall || SOCKETS.test(path.toLowerCase()) ? "unmetered" : undefined;
  const isRead = READS.has(method);
  if (isRead && pathModel !== undefined) return "unmetered";
  const cost =
    isCall && !isRead ? COSTS[operation] : worstOf(readingsOf(path).map((reading) => costAt(method, reading)));
  return cost === "free" && METHOD_OVERRIDE.test(decoded(query)) ? "unmetered" : cost;
}

/** The `ai` backend sends a POST to an unknown path to the provider's chat endpoint, which reports its usage. */
export function endpointCost(request: CostedRequest, dialect: Dialect): Cost {
  return listedCost(request, dialect) ?? (request.method === "POST" && !request.isUpgrade ? "metered" : "unmetered");
}

const COSTS = { call: "metered", count: "free", job: "unmetered" } as const;

function worstOf(costs: readonly (Cost | undefined)[]): Cost | undefined {
  return ORDER.find((cost) => costs.includes(cost));
}

const ORDER = ["unmetered", "metered", undefined, "free"] as const;

function costAt(method: string, { text, isVersioned }: Reading): Cost | undefined {
  const root = /^[^/:]*/.exec(text)?.[0] ?? "";
  if (READS.has(method)) return READ_ROOTS.has(root) ? "free" : undefined;
  if (matches(UNMETERED, text)) return "unmetered";
  if (method === "POST" && matches(METERED, text)) return "metered";
  if (isVersioned && matches(FREE[method] ?? [], text)) return "free";
  return STORES.has(root) || JOBS.test(text) || SOCKETS.test(text) ? "unmetered" : undefined;
}

function matches(patterns: readonly string[], text: string): boolean {
  const segments = text.split("/");
  return patterns.some((pattern) => {
    const wanted = pattern.split("/");
    return wanted.length === segments.length && wanted.every((one, i) => fits(one, segments[i] as string));
  });
}

/** A verb after a colon, as in `fileSearchStores/x:importFile`, is another operation. */
function fits(wanted: string, segment: string): boolean {
  return wanted === segment || (wanted === "*" && segment !== "" && !segment.includes(":"));
}

interface Reading {
  readonly text: string;
  readonly isVersioned: boolean;
}

/** Returns what servers may read after each version in the path, without differences in spelling that they ignore. */
function readingsOf(path: string): Reading[] {
  const paths = mayBeAmbiguous(path) ? [path, ...alternativePaths(path)] : [path];
  return paths.flatMap((one): Reading[] => {
    const text = one.toLowerCase().replace(/^\/|\/$/g, "");
    const after = [...text.matchAll(VERSION)].map(({ index, 0: { length } }) => text.slice(index + length));
    return after.length > 0 ? after.map((one) => ({ text: one, isVersioned: true })) : [{ text, isVersioned: false }];
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
