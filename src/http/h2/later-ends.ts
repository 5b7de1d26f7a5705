/**
 * Defers ending HTTP/2 sessions and streams with `setImmediate`. Node calls handlers, and ends sessions after a GOAWAY,
 * while nghttp2 reads a packet. Sending or closing during that time frees streams that nghttp2 still reads, or delivers
 * frames to closed streams, and a single packet could crash the process.
 */
import type { Http2Session, Http2Stream } from "node:http2";

/**
 * Defers every end of the session, including those by Node. Until then, `destroyed` must be false, because Node does not
 * create the streams of a destroyed session, and aborts the process when their DATA frames follow in the same packet.
 * Returns a function that ends the session immediately, for use outside its events.
 */
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
      // `close` lets the peer read the data that was written, and `destroy` prevents new streams.
      close.call(session);
      destroy.call(session);
    } finally {
      isNow = false;
    }
  };
}

export function closeStreamLater(stream: Http2Stream, code: number): void {
  setImmediate(() => {
    if (!stream.destroyed) stream.close(code);
  });
}
