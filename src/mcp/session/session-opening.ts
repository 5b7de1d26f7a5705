/**
 * How a session of the legacy era begins: by a client's `initialize` over a POST or over the old transport, or again, in
 * another process than the one that it was opened in.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import type { WireTap } from "../../core/wire.ts";
import type { Router } from "../aggregation/router.ts";
import type { Failure } from "../protocol/call.ts";
import { type ClientRequest, withId } from "../protocol/json-rpc.ts";
import { CANCELLED, type CallReport, outcomeOfFailure, SUCCEEDED } from "./call-outcome.ts";
import { KEEP_ALIVE_MS } from "./event-stream.ts";
import type { Session } from "./session.ts";

/** Brings up the servers and answers the client's `initialize`. */
export function openSession(
  session: Session,
  router: Router,
  request: ClientRequest,
  sink: BackendCall,
  report: CallReport,
  wire: WireTap | undefined,
): BackendRun {
  // The head waits for the outcome: only a session that came about has an id to send.
  const stream = session.createStream(KEEP_ALIVE_MS);
  stream.attach(sink);
  session.bringUp(
    router,
    (outcome) => {
      report.ended(request, undefined, outcome.ok ? SUCCEEDED : outcomeOfFailure(outcome.failure));
      if (outcome.ok) stream.last(withId(outcome.answer, request.id));
      else if (stream.hasHead) stream.last(outcome.text(request.id));
      else {
        stream.abort();
        outcome.refuse(sink, request.id);
      }
    },
    wire,
  );
  return {
    abort: () => {
      stream.abort();
      // The client never got the id: nobody can ever use this session.
      if (!session.isOpening) return;
      report.ended(request, undefined, CANCELLED);
      session.end("the client disconnected before the session was open");
    },
    resume: () => stream.resume(),
  };
}

/** Brings up the servers for a client of the old transport. */
export function openOnStream(
  session: Session,
  router: Router,
  request: ClientRequest,
  report: CallReport,
  wire: WireTap | undefined,
): void {
  session.bringUp(
    router,
    (outcome) => {
      report.ended(request, undefined, outcome.ok ? SUCCEEDED : outcomeOfFailure(outcome.failure));
      session.general.event(outcome.ok ? withId(outcome.answer, request.id) : outcome.text(request.id));
    },
    wire,
  );
}

/** Repeats the handshake of a session that began in another process. Resolves with why it failed, if it did. */
export function resumeSession(session: Session, router: Router): Promise<Failure | undefined> {
  return new Promise((resolve) => {
    session.bringUp(router, (outcome) => resolve(outcome.ok ? undefined : outcome.failure), undefined, false);
  });
}
