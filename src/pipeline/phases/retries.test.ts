import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange } from "../../../test/support/exchange.ts";
import { GatewayError } from "../../core/errors.ts";
import { HttpClientError } from "../../http/http-client.ts";
import { Retries } from "./pipeline.ts";

const unavailable = new GatewayError("backend_unavailable");
const stale = new GatewayError("backend_unavailable", { cause: new HttpClientError("stale", "closed") });

const exchange = anExchange();

test("without a policy a closed reused connection is retried once, immediately; any other failure is the response", () => {
  const retries = new Retries();
  assert.equal(retries.begin(undefined), false);
  assert.equal(retries.delayMs(unavailable, exchange), undefined);
  assert.equal(retries.delayMs(stale, exchange), 0);
  assert.equal(retries.begin(undefined), true);
  assert.equal(retries.delayMs(stale, exchange), undefined);
});

test("a policy allows its number of retries, and the wait doubles", () => {
  const retries = new Retries();
  const settings = { attempts: 3, backoffMs: 50, codes: new Set<number>() };
  const waits = [1, 2, 3, 4].map(() => {
    const isLast = retries.begin(settings);
    return [isLast, retries.delayMs(unavailable, exchange)];
  });
  assert.deepEqual(waits, [
    [false, 50],
    [false, 100],
    [false, 200],
    [true, undefined],
  ]);
});

test("a backoff of 0 retries immediately; 0 attempts retry nothing", () => {
  const eager = new Retries();
  eager.begin({ attempts: 1, backoffMs: 0, codes: new Set() });
  assert.equal(eager.delayMs(unavailable, exchange), 0);
  const none = new Retries();
  assert.equal(none.begin({ attempts: 0, backoffMs: 0, codes: new Set() }), true);
  assert.equal(none.delayMs(stale, exchange), undefined);
});

test("the settings of the backend that was chosen last decide", () => {
  const retries = new Retries();
  retries.begin({ attempts: 5, backoffMs: 10, codes: new Set() });
  assert.equal(retries.begin(undefined), true);
  assert.equal(retries.delayMs(unavailable, exchange), undefined);
});
