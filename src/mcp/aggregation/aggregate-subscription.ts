/**
 * Implements one subscription of a 2026-07-28 client to several targets. Each target receives its share of the filter. The
 * acknowledgments are merged, and notifications carry the names and the subscription id that the client uses.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import { editAt } from "../../json/syntax.ts";
import { type Call, type CallHandle, NO_CALL } from "../protocol/call.ts";
import {
  asServerMessage,
  editedRequest,
  INVALID_PARAMS,
  notificationText,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { withSubscription } from "../server-side/envelope-2026.ts";
import {
  acknowledgement,
  isEmpty,
  readFilter,
  requestedFilter,
  type SubscriptionFilter,
} from "../server-side/subscription-filter.ts";
import type { Upstream } from "../server-side/upstream.ts";
import { type Names, renamedNotification } from "./names.ts";

const PART = peerInput("mcp-server/part");

export interface AggregateSubscription extends CallHandle {
  join(upstream: Upstream): void;
}

export function subscribeToAll(
  call: Call,
  upstreams: readonly Upstream[],
  names: Names,
  mayRead: (uri: string, target: string) => boolean,
  answer: (result: string) => void,
): AggregateSubscription {
  const asked = requestedFilter(call.request);
  if (asked === undefined) {
    call.failed({ code: INVALID_PARAMS, status: 200, message: 'Invalid params: "notifications" is required' });
    return NO_SUBSCRIPTION;
  }
  const shares = upstreams
    .map((upstream) => ({ upstream, filter: targetFilter(asked, upstream, names, mayRead) }))
    .filter(({ filter }) => !isEmpty(filter));
  const acknowledged = new Map<Upstream, SubscriptionFilter>();
  const ended = new Set<Upstream>();
  let isAcknowledged = false;
  let hasJoined = false;

  const acknowledge = (): void => {
    if (isAcknowledged || shares.some(({ upstream }) => !acknowledged.has(upstream) && !ended.has(upstream))) return;
    isAcknowledged = true;
    call.notified(
      asServerMessage(withSubscription(acknowledgement(merged([...acknowledged.values()])), call.request.id)),
    );
    if (hasJoined) changed();
  };
  const changed = (): void => {
    for (const kind of ["tools", "prompts", "resources"] as const) {
      if (asked[`${kind}ListChanged`] !== true) continue;
      const text = notificationText(`notifications/${kind}/list_changed`, "{}");
      call.notified(asServerMessage(withSubscription(text, call.request.id)));
    }
  };
  const end = (upstream: Upstream): void => {
    ended.add(upstream);
    acknowledge();
    if (ended.size === shares.length) answer("{}");
  };
  const received = (upstream: Upstream, message: ServerMessage): void => {
    if (message.method !== "notifications/subscriptions/acknowledged")
      call.notified({ ...message, text: renamedNotification(message, names, upstream.target.name) });
    else {
      acknowledged.set(upstream, acknowledgedBy(message, upstream, names));
      acknowledge();
    }
  };

  if (shares.length === 0) {
    acknowledge();
    answer("{}");
    return NO_SUBSCRIPTION;
  }
  const start = ({ upstream, filter }: Share): CallHandle => {
    const span = find(call.request.text, 0, "params", "notifications");
    const request = span
      ? editedRequest(call.request, [editAt(span, JSON.stringify(filter))], {
          ...call.request.params,
          notifications: filter,
        })
      : call.request;
    return upstream.call({
      request,
      headers: call.headers,
      wire: call.wire,
      notified: (message) => received(upstream, message),
      asked: (question) => call.asked(question),
      answered: () => end(upstream),
      failed: () => end(upstream),
    });
  };
  const running = shares.map(start);
  let isOver = false;
  return {
    cancel: (reason) => {
      isOver = true;
      for (const one of running) one.cancel(reason);
    },
    join: (upstream) => {
      const share = { upstream, filter: targetFilter(asked, upstream, names, mayRead) };
      if (isOver || ended.size === shares.length || isEmpty(share.filter)) return;
      hasJoined = true;
      if (isAcknowledged) changed();
      shares.push(share);
      running.push(start(share));
    },
  };
}

interface Share {
  readonly upstream: Upstream;
  readonly filter: SubscriptionFilter;
}

const NO_SUBSCRIPTION: AggregateSubscription = { ...NO_CALL, join: () => undefined };

export function discoverResult(
  capabilities: object,
  instructions: string | undefined,
  versions: readonly string[],
): string {
  return JSON.stringify({
    supportedVersions: versions,
    capabilities,
    ...(instructions === undefined ? {} : { instructions }),
  });
}

function targetFilter(
  filter: SubscriptionFilter,
  { target }: Upstream,
  names: Names,
  mayRead: (uri: string, target: string) => boolean,
): SubscriptionFilter {
  const { resourceSubscriptions, ...lists } = filter;
  const uris = (resourceSubscriptions ?? []).flatMap((uri) => {
    const inward = names.isPrefixed ? names.inward("resource", uri) : { target: target.name, name: uri };
    return inward?.target === target.name && mayRead(inward.name, target.name) ? [inward.name] : [];
  });
  return uris.length === 0 ? lists : { ...lists, resourceSubscriptions: uris };
}

function acknowledgedBy(message: ServerMessage, upstream: Upstream, names: Names): SubscriptionFilter {
  const span = find(message.text, 0, "params", "notifications");
  const filter = (span && readFilter(readJson(PART, slice(message.text, span)))) ?? {};
  const uris = filter.resourceSubscriptions?.map((uri) => names.outward("resource", upstream.target.name, uri));
  return uris ? { ...filter, resourceSubscriptions: uris } : filter;
}

function merged(all: readonly SubscriptionFilter[]): SubscriptionFilter {
  const uris = [...new Set(all.flatMap((one) => one.resourceSubscriptions ?? []))];
  const result: SubscriptionFilter = Object.assign({}, ...all);
  return uris.length === 0 ? result : { ...result, resourceSubscriptions: uris };
}
