import assert from "node:assert/strict";
import { test } from "node:test";
import { isSensitiveName, type NamePlace } from "./sensitive-names.ts";

const EVERYWHERE: readonly NamePlace[] = ["header", "query", "json", "argument"];

const SENSITIVE =
  "authorization proxy-authorization cookie set-cookie x-api-key api-key api_key apikey apiKey APIKey x-goog-api-key " +
  "x-auth-token x-access-token x-vault-token private-token x-gitlab-token api-token ocp-apim-subscription-key x-functions-key " +
  "x-litellm-api-key dd-api-key x-shopify-access-token cf-access-jwt-assertion x-goog-iap-jwt-assertion " +
  "x-ms-token-aad-access-token x-jwt-assertion x-amz-security-token x-hub-signature-256 stripe-signature x-csrf-token " +
  "mcp-session-id x-session-id sessionId token auth sig signature secret jwt session X-Amz-Signature X-Amz-Credential pwd " +
  "passwd password passphrase bearer credential credentials client_secret clientSecret refresh_token access_tokens id_token " +
  "code_verifier device_code assertion privateKey private_key x-backend-key OPENAI_API_KEY AWS_SECRET_ACCESS_KEY DB_PASSWORD " +
  "user.password xauthtoken connection_string encryption-key x-amzn-oidc-accesstoken";

const ORDINARY =
  "accept content-type user-agent host x-request-id traceparent max_tokens max_completion_tokens prompt_tokens " +
  "x-ratelimit-remaining-tokens anthropic-ratelimit-tokens-reset idempotency-key sec-websocket-key sec-websocket-accept " +
  "x-session-affinity token_type token-count tokenizer keyboard monkey author authority secretary signed design " +
  "access-control-allow-credentials www-authenticate strict-transport-security surrogate-key cache-key partition_key public_key " +
  "issueKey project_key key_id access_key_id authorization_endpoint token_endpoint token_url session_ttl auth_method " +
  "password_file keywords compass passage assign significant cookiecutter code_language x-oauth-scopes";

for (const place of EVERYWHERE) {
  test(`names of credentials are recognized as ${place}, and ordinary ones are not [N19]`, () => {
    const missed = SENSITIVE.split(" ").filter((name) => !isSensitiveName(name, place));
    const wrong = ORDINARY.split(" ").filter((name) => isSensitiveName(name, place));
    assert.deepEqual({ missed, wrong }, { missed: [], wrong: [] });
  });
}

test("some words are credentials in one place only", () => {
  const places = (name: string): string => EVERYWHERE.filter((place) => isSensitiveName(name, place)).join(" ");
  assert.equal(places("key"), "header query argument");
  assert.equal(places("code"), "query");
  assert.equal(places("pass"), "header query argument");
  assert.equal(places(""), "");
  assert.equal(places("-_."), "");
});

test("a name of any length is judged in bounded time, and more names than the cache holds are judged alike", () => {
  assert.equal(isSensitiveName("a".repeat(1_000_000), "header"), true);
  for (let i = 0; i < 10_000; i++) {
    assert.equal(isSensitiveName(`x-${i}-token`, "header"), true);
    assert.equal(isSensitiveName(`x-${i}-tokens`, "header"), false);
  }
});
