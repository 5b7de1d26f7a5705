import assert from "node:assert/strict";
import { test } from "node:test";
import { callAdmin, readStream } from "../../../test/support/admin.ts";
import { anExchange } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import { createTraceHub } from "../../record/trace/trace.ts";
import { traceEndpoint } from "./requests.ts";

test("a trace is armed before any request, carries its events and ends with it", async () => {
  const clock = fakeClock();
  const hub = createTraceHub<Exchange>();
  const { response } = await callAdmin(traceEndpoint(hub, clock));
  const read = readStream(response);
  assert.match(read.text(), /^: armed/);
  const watcher = hub.take(anExchange());
  watcher?.event({ eventStart: null, eventEnd: 3, severity: "info", message: { type: "requestStarted" } });
  watcher?.finished();
  await read.ended;
  assert.match(
    read.text(),
    /data: \{"eventStart":null,"eventEnd":3,"severity":"info","message":\{"type":"requestStarted"\}\}\n\n$/,
  );
  assert.equal(clock.pending(), 0);
});

test("a HEAD response, which has no body, does not block others", async () => {
  const hub = createTraceHub<Exchange>();
  await callAdmin(traceEndpoint(hub, fakeClock()));
  assert.equal(hub.waiting(), 0);
});

test("a reader that disconnects is no longer waiting", async () => {
  const hub = createTraceHub<Exchange>();
  readStream((await callAdmin(traceEndpoint(hub, fakeClock()))).response).leave();
  assert.equal(hub.waiting(), 0);
});
