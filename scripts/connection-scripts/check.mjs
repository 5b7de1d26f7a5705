/**
 * Checks the output of one connection: every response belongs to its request, in order and complete, and nothing
 * follows the last one. Returns a complaint or undefined.
 */
import { hashOf } from "./kinds.mjs";

export function checkAnswers(messages, text, wasReset) {
  let at = 0;
  let saidClose = false;
  for (const [i, message] of messages.entries()) {
    const name = `message ${i} (${message.kind})`;
    let answer = readAnswer(text, at, message);
    while (answer?.status === 100 && message.interim) answer = readAnswer(text, answer.end, message);
    if (answer === undefined) {
      const mayHaveEnded = messages[i - 1]?.end === "may" && saidClose;
      // A reset may discard the response to a rejected request; only then is a missing response allowed.
      if (
        (mayHaveEnded || (wasReset && messages.slice(0, i + 1).some(({ end }) => end !== "no"))) &&
        text.length === at
      )
        return undefined;
      return `${name}: no whole answer; unread: ${JSON.stringify(text.slice(at, at + 200))}`;
    }
    const complaint = judge(message, answer);
    if (complaint !== undefined) return `${name}: ${complaint}`;
    at = answer.end;
    saidClose = answer.headers.get("connection") === "close";
    if (message.isTunnel) return checkTunnel(messages.slice(i + 1), message, text.slice(at), wasReset);
    if (message.end === "no" && saidClose) return `${name}: the connection ends with it`;
    if (message.end === "yes") break;
    // After rejecting an ambiguous request, the gateway must close the connection.
    if (message.from === "any" && answer.status >= 400) break;
  }
  return text.length === at ? undefined : `bytes after the last answer: ${JSON.stringify(text.slice(at, at + 200))}`;
}

function judge(message, { status, headers, body }) {
  if (!message.statuses.includes(status)) return `status ${status}`;
  const isRefusal = headers.has("x-gateway-error") || message.from === "gateway";
  if (message.from === "gateway" || (message.from === "any" && status >= 400))
    return headers.has("x-id") ? `a backend's answer (${headers.get("x-id")}) in place of a refusal` : undefined;
  if (headers.get("x-id") !== message.id) return `the answer of ${headers.get("x-id")}`;
  if (isRefusal) return `refused: ${headers.get("x-gateway-error")}`;
  if (message.isTunnel || message.method === "HEAD" || status === 204) return undefined;
  const wanted = `answer ${message.id} ${message.hash}`;
  return body.startsWith(wanted) ? undefined : `body ${JSON.stringify(body.slice(0, 60))}, wanted ${wanted}`;
}

function checkTunnel(rest, message, text, wasReset) {
  const wanted = `tunnel ${message.id} ${hashOf(rest.map(({ bytes }) => bytes).join(""))}`;
  return text === wanted || (wasReset && wanted.startsWith(text))
    ? undefined
    : `tunnel: ${JSON.stringify(text.slice(0, 200))}, wanted ${wanted}`;
}

function readAnswer(text, start, message) {
  const headEnd = text.indexOf("\r\n\r\n", start);
  if (headEnd < 0) return undefined;
  const lines = text.slice(start, headEnd).split("\r\n");
  const status = Number(/^HTTP\/1\.1 (\d{3})(?: |$)/.exec(lines[0])?.[1] ?? -1);
  const headers = new Map();
  for (let i = 1; i < lines.length; i++) {
    const colon = lines[i].indexOf(":");
    headers.set(lines[i].slice(0, colon).toLowerCase(), lines[i].slice(colon + 1).trim());
  }
  const bodyStart = headEnd + 4;
  const whole = (end, body) => (end > text.length ? undefined : { status, headers, body, end });
  if (status < 200 || status === 204 || status === 304 || message.method === "HEAD") return whole(bodyStart, "");
  if (headers.get("transfer-encoding") === "chunked") return readChunks(text, bodyStart, whole);
  const length = headers.get("content-length");
  // Without either, the end of the connection ends the body.
  const end = length === undefined ? text.length : bodyStart + Number(length);
  return whole(end, text.slice(bodyStart, end));
}

function readChunks(text, start, whole) {
  let body = "";
  for (let at = start; ; ) {
    const lineEnd = text.indexOf("\r\n", at);
    if (lineEnd < 0) return undefined;
    const size = Number.parseInt(text.slice(at, lineEnd), 16);
    if (!(size >= 0)) return undefined;
    if (size === 0) return text.startsWith("\r\n", lineEnd + 2) ? whole(lineEnd + 4, body) : undefined;
    body += text.slice(lineEnd + 2, lineEnd + 2 + size);
    at = lineEnd + 2 + size + 2;
  }
}
