/**
 * Streams that send the next chunk only after the client has received the previous one, so that every program reads
 * and writes each chunk separately. Otherwise, a slower program finds more chunks in each read and does less work.
 * Backend and client run in one process to coordinate this.
 */
import { createServer } from "node:http";
import { connect } from "node:net";
import { events } from "../llm/events.mjs";
import { httpRequest } from "./load.mjs";

const STREAMS = 60;
const CHUNKS = events();
/** By the number that the request names: lets the next chunk out. */
const waiting = new Map();

export async function startStepped() {
  const server = createServer((req, res) => {
    let asked = req.url;
    req.on("data", (part) => {
      asked += part.latin1Slice();
    });
    req.on("end", () => {
      const [, stream] = /(?:"user":"|\/stream\/)(\d+)/.exec(asked) ?? [];
      res.writeHead(200, { "content-type": "text/event-stream" });
      let sent = 0;
      const step = () => {
        if (sent === CHUNKS.length) return;
        res.write(CHUNKS[sent++]);
        // A usage chunk that the client does not get is followed by the last one.
        if (sent === CHUNKS.length - 1) res.write(CHUNKS[sent++]);
        if (sent === CHUNKS.length) res.end();
      };
      waiting.set(stream, step);
      step();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: server.address().port, stop: async () => void server.close() };
}

let nextStream = 1;

/** Resolves with the number of errors. */
export function readStepped({ port, count, request }) {
  return new Promise((resolve) => {
    let begun = 0;
    let done = 0;
    let errors = 0;
    const open = () => {
      const socket = connect(port, "127.0.0.1");
      socket.setNoDelay(true);
      let stream = "";
      let tail = "";
      const next = () => {
        if (begun >= count) {
          socket.end();
          return;
        }
        begun += 1;
        stream = String(nextStream++);
        tail = "";
        socket.write(request(stream));
      };
      const finished = (failed) => {
        waiting.delete(stream);
        done += 1;
        if (failed) errors += 1;
        if (done >= count) resolve(errors);
      };
      socket.on("connect", next);
      socket.on("data", (chunk) => {
        tail = (tail + chunk.latin1Slice()).slice(-7);
        if (!tail.endsWith("0\r\n\r\n")) waiting.get(stream)?.();
        else {
          finished(false);
          stream = "";
          next();
        }
      });
      socket.on("error", () => undefined);
      socket.on("close", () => {
        if (stream !== "") finished(true);
      });
    };
    for (let i = 0; i < Math.min(STREAMS, count); i++) open();
  });
}

export const steppedGet = (headers) => (stream) => httpRequest({ path: `/stream/${stream}`, headers });
