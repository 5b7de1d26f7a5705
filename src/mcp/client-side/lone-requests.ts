/**
 * A request that stands alone, of the modern era or of a client without a session: served in a lane, which is counted
 * while it runs.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { ClientRequest } from "../protocol/json-rpc.ts";
import type { CallReport } from "../session/call-outcome.ts";
import type { Lane } from "../session/lane.ts";
import { ModernCall } from "../session/modern-call.ts";
import type { SessionStore } from "../session/session-store.ts";
import { statelessCall } from "./stateless.ts";

export interface AloneEnv {
  readonly report: CallReport;
  readonly sessions: SessionStore;
  nowMs(): number;
}

/** `sent` is what servers are asked for the client's request. */
export function serveAlone(
  lane: Lane,
  { request, sent }: { readonly request: ClientRequest; readonly sent: ClientRequest },
  exchange: Exchange,
  sink: BackendCall,
  { report, sessions, nowMs }: AloneEnv,
): BackendRun {
  const isStateless = sent !== request;
  const call = new ModernCall(request, exchange.request.headers, sink, exchange.isWatched ? sink : undefined, {
    report,
    hidesStatus: isStateless,
    nowMs,
    ended: (ended) => {
      sessions.noBeatFor(ended);
      lane.count(-1);
    },
  });
  lane.count(1);
  sessions.beatFor(call);
  call.running = lane.run(isStateless ? statelessCall(call, sent) : call, exchange.mcp.access);
  return call;
}
