/**
 * `/debug/requests`: the last requests, newest first, so that one can look after something happened; `?id=` tells the
 * story of one, `?follow=true` is a live stream of summaries for the UI.
 */
import type { Clock } from "../../base/clock.ts";
import { type FactRing, RECORDED_REQUESTS } from "../../pipeline/records/fact-ring.ts";
import { findOlder, olderRequests } from "../../pipeline/records/older-requests.ts";
import { RECENT_REQUESTS, type RecentRequests } from "../../pipeline/records/recent-requests.ts";
import { type AdminAnswer, type AdminEndpoint, type AdminRequest, jsonAnswer, textAnswer } from "../server/endpoint.ts";
import { eventStreamAnswer } from "../server/event-stream.ts";
import { numberParameter } from "../server/parameter.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const LIMIT = { name: "limit", min: 1, max: RECENT_REQUESTS, default: 100 };
const SINCE = { name: "since", min: 0, max: Number.MAX_SAFE_INTEGER, default: 0 };
/** Each open page of the UI holds one; more are forgotten tabs or a loop. */
const MAX_FOLLOWERS = 8;

export function requestsEndpoint(recent: RecentRequests, facts: FactRing, clock: Clock): AdminEndpoint {
  let followers = 0;

  function follow(): AdminAnswer {
    if (followers >= MAX_FOLLOWERS)
      return textAnswer(429, `${MAX_FOLLOWERS} clients already follow; close one and try again\n`);
    return eventStreamAnswer(clock, (stream) => {
      followers += 1;
      stream.comment("following");
      const stop = recent.follow((record) => stream.data(record));
      return () => {
        stop();
        followers -= 1;
      };
    });
  }

  function list({ query }: AdminRequest): AdminAnswer {
    const limit = numberParameter(query, LIMIT);
    if (!limit.ok) return limit.refusal;
    const since = numberParameter(query, SINCE);
    if (!since.ok) return since.refusal;
    const before = query.get("before");
    if (before !== null) return older(before, limit.value);
    return jsonAnswer({
      requests: recent.list({ limit: limit.value, ...(query.has("since") ? { since: since.value } : {}) }),
      inFlight: recent.counts.inFlight,
      kept: recent.counts.kept,
      capacity: RECENT_REQUESTS,
    });
  }

  function older(before: string, limit: number): AdminAnswer {
    const beforeMs = Date.parse(before);
    if (Number.isNaN(beforeMs)) return textAnswer(400, "before must be a time such as 2026-01-31T12:00:00Z\n");
    return jsonAnswer({ requests: olderRequests(facts, beforeMs, limit) });
  }

  return {
    path: ADMIN_PATHS.requests,
    doc: "Recent requests, newest first: ?limit=, ?since=<seq>, ?before=<time>; ?id=<x-request-id> explains one; ?follow=true streams.",
    GET(request) {
      const id = request.query.get("id");
      if (id !== null) {
        const recently = recent.find(id);
        const found = recently.length > 0 ? recently : findOlder(facts, id);
        return found.length === 0
          ? textAnswer(404, `no request ${JSON.stringify(id)} among the last ${RECORDED_REQUESTS}\n`)
          : jsonAnswer({ requests: found });
      }
      return request.query.get("follow") === "true" ? follow() : list(request);
    },
  };
}
