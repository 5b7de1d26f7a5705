import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { createTokenReviews, TOKEN_AUDIENCE, TooManyReviews } from "./token-reviews.ts";

/** An API server to which tokens with a user are valid. It responds when the test says so. */
function apiServer() {
  const users = new Map<string, string>();
  const waiting: (() => void)[] = [];
  const server = {
    users,
    requests: 0,
    mostAtOnce: 0,
    isDown: false,
    request({ body }: { body?: unknown }): Promise<unknown> {
      const { token } = (body as { spec: { token: string } }).spec;
      server.requests += 1;
      return new Promise((resolve, reject) => {
        const respond = (): void => {
          if (server.isDown) reject(new Error("down"));
          const username = users.get(token);
          const status = { authenticated: username !== undefined, audiences: [TOKEN_AUDIENCE], user: { username } };
          resolve({ status });
        };
        waiting.push(respond);
        server.mostAtOnce = Math.max(server.mostAtOnce, waiting.length);
      });
    },
    respondToAll(): void {
      for (const respond of waiting.splice(0)) respond();
    },
  };
  return server;
}

function setUp() {
  const clock = fakeClock();
  const api = apiServer();
  const reviews = createTokenReviews(api as never, clock);
  const userOf = (token: string, address: string): Promise<string | undefined> => {
    const result = reviews.userOf(token, address);
    api.respondToAll();
    return result;
  };
  return { clock, api, reviews, userOf };
}

test("any number of invalid tokens leaves the results of valid ones", async () => {
  const { api, clock, userOf } = setUp();
  api.users.set("good", "system:serviceaccount:a:b");
  assert.equal(await userOf("good", "10.0.0.1"), "system:serviceaccount:a:b");
  for (let i = 0; i < 10_001; i++) assert.equal(await userOf(`bad ${i}`, "10.0.0.2"), undefined);
  const { requests } = api;
  assert.equal(await userOf("good", "10.0.0.1"), "system:serviceaccount:a:b");
  assert.equal(api.requests, requests, "its result is kept");
  await clock.advance(300_000);
  api.isDown = true;
  assert.equal(await userOf("good", "10.0.0.1"), "system:serviceaccount:a:b", "the API server is down");
  api.isDown = false;
  api.users.clear();
  assert.equal(await userOf("good", "10.0.0.1"), undefined);
  api.isDown = true;
  await clock.advance(60_000);
  assert.equal(await userOf("good", "10.0.0.1"), undefined, "a revoked token stays invalid");
});

test("an address has few reviews at once, and others are served", async () => {
  const { api, reviews } = setUp();
  api.users.set("good", "user");
  const flood = Array.from({ length: 1_000 }, (_, i) => reviews.userOf(`bad ${i}`, "10.0.0.2"));
  const other = [reviews.userOf("good", "10.0.0.1"), reviews.userOf("good", "10.0.0.1")];
  api.respondToAll();
  const results = await Promise.allSettled(flood);
  const rejected = results.filter((one) => one.status === "rejected" && one.reason instanceof TooManyReviews);
  assert.deepEqual([rejected.length, api.mostAtOnce], [996, 5]);
  assert.deepEqual(await Promise.all(other), ["user", "user"]);
  const next = reviews.userOf("bad 5", "10.0.0.2");
  api.respondToAll();
  assert.equal(await next, undefined, "the address has finished its reviews");
});

const USER = { username: "system:serviceaccount:a:b" };
const OWN = [TOKEN_AUDIENCE];
/** The status of a review, and whether the token is valid. */
const STATUSES: readonly [status: unknown, isValid: boolean][] = [
  [{ authenticated: true, audiences: OWN, user: USER }, true],
  [{ authenticated: true, audiences: ["other", TOKEN_AUDIENCE], user: USER }, true],
  [{ authenticated: true, audiences: ["https://kubernetes.default.svc"], user: USER }, false],
  [{ authenticated: true, audiences: [`${TOKEN_AUDIENCE}2`, "gateway"], user: USER }, false],
  [{ authenticated: true, audiences: TOKEN_AUDIENCE, user: USER }, false],
  [{ authenticated: true, audiences: [], user: USER }, false],
  [{ authenticated: true, audiences: null, user: USER }, false],
  [{ authenticated: true, user: USER }, false],
  [{ authenticated: false, audiences: OWN, user: USER }, false],
  [{ authenticated: "true", audiences: OWN, user: USER }, false],
  [{ audiences: OWN, user: USER }, false],
  [{ authenticated: true, audiences: OWN, user: {} }, false],
  [{ authenticated: true, audiences: OWN, user: { username: ["a"] } }, false],
  [{ authenticated: true, audiences: OWN }, false],
  [null, false],
];
for (const [status, isValid] of STATUSES)
  test(`a review ${isValid ? "accepts" : "rejects"} ${JSON.stringify(status)}`, async () => {
    const reviews = createTokenReviews({ request: async () => ({ status }) } as never, fakeClock());
    assert.equal(await reviews.userOf("token", "10.0.0.1"), isValid ? USER.username : undefined);
  });
