/**
 * Selects the fields of the configuration dump and of requests that viewers of the UI see. The dump is filtered by
 * allowlists, so strings in a new field are hidden until it is added to a list.
 */
import { z } from "zod";
import type { UiResponse } from "../../backends/ui/source.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { configSchema } from "../../config/schema/schema.ts";
import { readJson } from "../../json/read-json.ts";
import { explainRequest } from "../../record/trace/explain.ts";
import type { RequestDetail, RequestRecord } from "../../record/trace/record.ts";
import { REDACTED } from "../../record/trace/redact.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const RESPONSE = peerInput("thread/admin-response");

type Json = Readonly<Record<string, unknown>>;

const DURATION = /^(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+$/;
const BACKEND_FIELDS: ReadonlySet<string> = new Set(["name", "of", "provider", "models", "host", "state", "since"]);

export function viewerResponse(path: string, response: UiResponse): UiResponse {
  const view =
    path === ADMIN_PATHS.configDump ? viewOfDump : path === ADMIN_PATHS.requests ? viewOfRequests : undefined;
  if (view === undefined || response.status !== 200) return response;
  const shown = view(readJson(RESPONSE, response.body) as Json);
  return { ...response, body: Buffer.from(`${JSON.stringify(shown)}\n`) };
}

function viewOfDump(dump: Json): Json {
  const { binds, version, reload } = dump;
  return {
    binds,
    listeners: objectsIn(dump.listeners).map((listener) => ({
      ...picked(listener, ["name", "port", "protocol", "routes"]),
      policies: masked(listener.policies),
    })),
    routes: objectsIn(dump.routes).map((route) => ({
      ...picked(route, ["name", "gateways", "hostnames", "backends"]),
      matches: objectsIn(route.matches).map(viewOfMatch),
      policies: masked(route.policies),
    })),
    backends: objectsIn(dump.backends).map(({ type, protocol, policies, ...backend }) => ({
      type,
      protocol,
      ...(masked(backend, BACKEND_FIELDS) as Json),
      policies: masked(policies),
    })),
    workloads: [],
    services: objectsIn(dump.services).map((service) => picked(service, ["name"])),
    policies: objectsIn(dump.policies).map(viewOfPolicy),
    config: {},
    version,
    reload: viewOfReload(objectOf(reload)),
  };
}

function viewOfMatch(match: Json): Json {
  const { headers, query } = match;
  const hidden = (list: unknown): Json[] =>
    objectsIn(list).map((one) => ({ ...(masked(one) as Json), ...picked(one, ["name"]) }));
  return {
    ...picked(match, ["path", "method"]),
    ...(headers === undefined ? {} : { headers: hidden(headers) }),
    ...(query === undefined ? {} : { query: hidden(query) }),
  };
}

function viewOfPolicy(policy: Json): Json {
  const { metadata, status } = policy;
  return {
    ...picked(policy, ["apiVersion", "kind", "target"]),
    ...(metadata === undefined ? {} : { metadata: picked(objectOf(metadata), ["name", "namespace"]) }),
    ...(policy.policy === undefined ? {} : { policy: masked(policy.policy) }),
    ...(policy.spec === undefined ? {} : { spec: masked(policy.spec) }),
    ...(status === undefined
      ? {}
      : { status: { ancestors: objectsIn(objectOf(status).ancestors).map(viewOfAncestor) } }),
  };
}

function viewOfAncestor(ancestor: Json): Json {
  return {
    ...picked(ancestor, ["ancestorRef", "controllerName"]),
    conditions: objectsIn(ancestor.conditions).map((condition) =>
      picked(condition, ["type", "status", "reason", "lastTransitionTime"]),
    ),
  };
}

/** Hides problems and warnings, which quote the configuration, and file names, which reveal its location. */
function viewOfReload(reload: Json): Json {
  const counted = (list: unknown): string[] =>
    Array.isArray(list) && list.length > 0 ? [`${list.length}, shown to operators only`] : [];
  const refused = reload.refused === undefined ? undefined : objectOf(reload.refused);
  return {
    ...picked(reload, ["loadedAt", "generation", "needsRestart"]),
    ...(refused === undefined ? {} : { refused: { at: refused.at, problems: counted(refused.problems) } }),
    warnings: counted(reload.warnings),
    sources: [],
  };
}

function viewOfRequests(response: Json): Json {
  const requests = (response.requests ?? []) as readonly (RequestRecord | RequestDetail)[];
  return { ...picked(response, ["inFlight", "kept", "capacity"]), requests: requests.map(viewOfRequest) };
}

/**
 * Keeps the caller, the operation, and the outcome. Removes headers, query, claims, body snapshots, and reasons, which
 * quote rules.
 */
function viewOfRequest(record: RequestRecord | RequestDetail): Json {
  const { failure, shadow, ...rest } = record;
  const { requestState, story: _story, trace: _trace, ...attributes } = rest as Partial<RequestDetail> & typeof rest;
  const shown: RequestRecord = {
    ...attributes,
    ...(failure ? { failure: { code: failure.code, source: failure.source, message: failure.message } } : {}),
    ...(shadow ? { shadow: shadow.map(({ policy }) => ({ policy, reason: REDACTED })) } : {}),
  };
  if (requestState === undefined) return { ...shown };
  const { path, host, scheme } = objectOf(requestState.request);
  const request = {
    ...picked(objectOf(requestState.request), ["method", "path", "host", "scheme", "version", "startTime"]),
    uri: `${String(scheme)}://${String(host)}${String(path)}`,
    pathAndQuery: path,
    headers: {},
  };
  return { ...shown, story: explainRequest(shown), requestState: { request, source: requestState.source } };
}

/**
 * Keeps numbers, booleans, durations, enumeration values of the schema, and the fields in `shownFields`, and hides all
 * other strings.
 */
function masked(value: unknown, shownFields?: ReadonlySet<string>, field = ""): unknown {
  if (typeof value === "string")
    return shownFields?.has(field) || DURATION.test(value) || schemaWords().has(value) ? value : REDACTED;
  if (Array.isArray(value)) return value.map((element) => masked(element, shownFields, field));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, masked(inner, shownFields, key)]));
}

let words: ReadonlySet<string> | undefined;

function schemaWords(): ReadonlySet<string> {
  if (words !== undefined) return words;
  const found = new Set<string>();
  const collect = (node: unknown): void => {
    if (typeof node !== "object" || node === null) return;
    const { enum: list, const: word } = node as { enum?: unknown; const?: unknown };
    for (const one of [...(Array.isArray(list) ? list : []), word]) if (typeof one === "string") found.add(one);
    for (const inner of Object.values(node)) collect(inner);
  };
  collect(z.toJSONSchema(configSchema, { io: "input", unrepresentable: "any" }));
  words = found;
  return found;
}

function picked(from: Json, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]])));
}

function objectOf(value: unknown): Json {
  return typeof value === "object" && value !== null ? (value as Json) : {};
}

function objectsIn(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}
