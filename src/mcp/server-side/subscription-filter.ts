/**
 * Parses, restricts, and matches the subscription filters of 2026-07-28 (`subscriptions/listen`).
 */

import { find } from "../../json/json-text.ts";
import { editAt } from "../../json/syntax.ts";
import { type ClientRequest, editedRequest } from "../protocol/json-rpc.ts";
import type { ServerAbout } from "./upstream.ts";

export interface SubscriptionFilter {
  toolsListChanged?: true;
  promptsListChanged?: true;
  resourcesListChanged?: true;
  resourceSubscriptions?: readonly string[];
}

const LIST_CHANGES = [
  { key: "toolsListChanged", capability: "tools", method: "notifications/tools/list_changed" },
  { key: "promptsListChanged", capability: "prompts", method: "notifications/prompts/list_changed" },
  { key: "resourcesListChanged", capability: "resources", method: "notifications/resources/list_changed" },
] as const;

const MAX_RESOURCES = 1_000;

export function requestedFilter(request: ClientRequest): SubscriptionFilter | undefined {
  return readFilter(request.params.notifications);
}

/** Ignores malformed members. Returns undefined if the value is not an object. */
export function readFilter(asked: unknown): SubscriptionFilter | undefined {
  if (typeof asked !== "object" || asked === null || Array.isArray(asked)) return undefined;
  const from = asked as Record<string, unknown>;
  const filter: SubscriptionFilter = {};
  for (const { key } of LIST_CHANGES) if (from[key] === true) filter[key] = true;
  if (Array.isArray(from.resourceSubscriptions)) {
    const uris = from.resourceSubscriptions
      .filter((uri): uri is string => typeof uri === "string")
      .slice(0, MAX_RESOURCES);
    if (uris.length > 0) filter.resourceSubscriptions = uris;
  }
  return filter;
}

/** Removes resources that the client may not read from a subscription. Other requests pass unchanged. */
export function permittedSubscription(request: ClientRequest, mayRead: (uri: string) => boolean): ClientRequest {
  if (request.method !== "subscriptions/listen") return request;
  const wanted = request.params.notifications as { resourceSubscriptions?: readonly string[] };
  const uris = wanted.resourceSubscriptions ?? [];
  const kept = uris.filter(mayRead);
  const span = find(request.text, 0, "params", "notifications", "resourceSubscriptions");
  if (!span || kept.length === uris.length) return request;
  const notifications = { ...wanted, resourceSubscriptions: kept };
  return editedRequest(request, [editAt(span, JSON.stringify(kept))], { ...request.params, notifications });
}

export function supportedFilter(filter: SubscriptionFilter, about: ServerAbout | undefined): SubscriptionFilter {
  const result: SubscriptionFilter = {};
  const can = (capability: string, what: string): boolean =>
    (about?.capabilities[capability] as Record<string, unknown> | undefined)?.[what] === true;
  for (const { key, capability } of LIST_CHANGES) if (filter[key] && can(capability, "listChanged")) result[key] = true;
  if (filter.resourceSubscriptions && can("resources", "subscribe"))
    result.resourceSubscriptions = filter.resourceSubscriptions;
  return result;
}

/** Includes all list changes, because 2025 clients receive them without a subscription. */
export function fullFilter(about: ServerAbout | undefined, uris: readonly string[]): SubscriptionFilter {
  return supportedFilter(
    {
      toolsListChanged: true,
      promptsListChanged: true,
      resourcesListChanged: true,
      ...(uris.length > 0 ? { resourceSubscriptions: uris } : {}),
    },
    about,
  );
}

export function isEmpty(filter: SubscriptionFilter): boolean {
  return Object.keys(filter).length === 0;
}

export function matchesFilter(
  filter: SubscriptionFilter,
  method: string | undefined,
  uri: string | undefined,
): boolean {
  if (method === "notifications/resources/updated")
    return uri !== undefined && filter.resourceSubscriptions?.includes(uri) === true;
  return LIST_CHANGES.some((one) => one.method === method && filter[one.key] === true);
}

export function acknowledgement(filter: SubscriptionFilter): string {
  return `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":${JSON.stringify(filter)}}}`;
}
