/**
 * Ends of HTTP/2 sessions and streams wait for the next turn of the event loop. Node calls handlers, and ends sessions by
 * itself (a GOAWAY of the peer), while nghttp2 is reading a packet. What is sent or ended in the middle of that frees
 * streams that nghttp2 goes on to read, or lets frames reach streams that are gone: one packet ends the process.
 */
import type { Http2Session, Http2Stream } from "node:http2";

/** Whoever ends the session from now on, Node too, ends it in the next turn. Returns how to end it now, outside of its events. */
export function endSessionLater(session: Http2Session): () => void {
  const { close, destroy } = session;
  let isNow = false;
  session.close = (callback) => {
    if (isNow) close.call(session, callback);
    else setImmediate(() => close.call(session, callback));
  };
  session.destroy = (error, code) => {
    if (isNow) destroy.call(session, error, code);
    else setImmediate(() => destroy.call(session, error, code));
  };
  return () => {
    isNow = true;
    try {
      // Marked as closed, so that the other side may read what was written; and ended at once, so that no stream comes between.
      close.call(session);
      destroy.call(session);
    } finally {
      isNow = false;
    }
  };
}

/** Resets a stream, or closes it where it has ended. */
export function closeStreamLater(stream: Http2Stream, code: number): void {
  setImmediate(() => {
    if (!stream.destroyed) stream.close(code);
  });
}
