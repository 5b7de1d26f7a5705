import assert from "node:assert/strict";
import { test } from "node:test";
import { childEnvironment, childSecrets } from "./stdio-transport.ts";

const own = {
  PATH: "/bin",
  HOME: "/home/u",
  LC_ALL: "C",
  https_proxy: "http://p:1",
  NODE_EXTRA_CA_CERTS: "/ca",
  npm_config_registry: "https://r",
  npm_config__authToken: "s3cret",
  UV_INDEX_URL: "https://u",
  UV_INDEX_X_PASSWORD: "s3cret",
  PIP_INDEX_URL: "https://i",
  OPENAI_API_KEY: "s3cret",
  AWS_SECRET_ACCESS_KEY: "s3cret",
  GITHUB_TOKEN: "s3cret",
  NODE_OPTIONS: "--require evil",
  LD_PRELOAD: "evil.so",
  SHELL: "() { :; }",
  GONE: undefined,
};

test("a child gets what programs need, and no secret [P2]", () => {
  assert.deepEqual(childEnvironment(own, { env: {}, inheritEnv: false }), {
    PATH: "/bin",
    HOME: "/home/u",
    LC_ALL: "C",
    https_proxy: "http://p:1",
    NODE_EXTRA_CA_CERTS: "/ca",
    npm_config_registry: "https://r",
    UV_INDEX_URL: "https://u",
    PIP_INDEX_URL: "https://i",
  });
});

test("configured variables are added and take precedence", () => {
  const env = childEnvironment(own, { env: { GITHUB_TOKEN: "given", PATH: "/opt" }, inheritEnv: false });
  assert.equal(env.GITHUB_TOKEN, "given");
  assert.equal(env.PATH, "/opt");
  assert.equal(env.OPENAI_API_KEY, undefined);
});

test("all variables are inherited only with inheritEnv", () => {
  const env = childEnvironment(own, { env: { X: "1" }, inheritEnv: true });
  assert.equal(env.OPENAI_API_KEY, "s3cret");
  assert.equal(env.X, "1");
  assert.equal("GONE" in env, false);
});

test("configured values and inherited keys are redacted from the output of a child", () => {
  const own = { PATH: "/bin", OPENAI_API_KEY: "sk-1", db_password: "p", CITY: "Rome" };
  assert.deepEqual(childSecrets(own, { env: { ANY: "set" }, inheritEnv: false }), ["set"]);
  assert.deepEqual(childSecrets(own, { env: { ANY: "set" }, inheritEnv: true }), ["set", "sk-1", "p"]);
});
