/**
 * Implements bearer token authentication (RFC 6750) for the policies that verify tokens.
 */
import { z } from "zod";
import type { GivenToken, RecordedIdentity } from "../../core/dry-env.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import type { TokenVerifier, Verdict } from "../keys/token-verifier.ts";
import { type ClaimRules, claimProblem, issuerProblem } from "../tokens/claims.ts";
import {
  failure,
  freezeClaims,
  parseToken,
  readUnverified,
  type TokenClaims,
  type TokenProblem,
} from "../tokens/token.ts";
import type { TokenReader } from "./token-location.ts";

export const authenticationMode = z
  .enum(["strict", "optional", "permissive"])
  .describe(
    "`strict`: a valid credential is required. `optional`: requests without a credential are allowed; invalid credentials are rejected. `permissive`: all requests are allowed; an invalid credential is neither readable nor forwarded. `gwctl shadow report` shows the requests that `strict` would deny.",
  );
export type AuthenticationMode = z.output<typeof authenticationMode>;

export interface AcceptedIssuer {
  readonly verifier: TokenVerifier;
  readonly rules: ClaimRules;
}

export interface BearerOptions {
  readonly kind: string;
  readonly mode: AuthenticationMode;
  readonly reader: TokenReader;
  /** A token that names no accepted issuer is checked against the first issuer, which rejects it. */
  readonly issuers: readonly [AcceptedIssuer, ...AcceptedIssuer[]];
  /** These attributes follow the scheme in `www-authenticate`, for example `resource_metadata="…"`. */
  readonly challenge: string;
  hint?(problem: TokenProblem, claims: TokenClaims | undefined): string | undefined;
}

const KEYS_MISSING = "the identity provider's keys are not available yet";

export interface BearerAuthentication {
  request(exchange: Exchange): undefined | Promise<undefined>;
  /** Authenticates a dry run without verifying the signature of a given token. Given claims are not checked. */
  given(exchange: Exchange, given: GivenToken): undefined;
  recorded(exchange: Exchange, identity: RecordedIdentity): undefined | Promise<undefined>;
}

/** Records a request that a permissive policy admits and a strict policy would deny. */
export function toleratedInShadow(exchange: Exchange, kind: string, rule: string, detail = rule): void {
  exchange.deniedInShadow(kind, detail, { rule, isCounted: true });
}

export function createBearerAuthentication(options: BearerOptions): BearerAuthentication {
  const { kind, mode, reader, issuers, challenge } = options;
  const missing = { "www-authenticate": challenge === "" ? "Bearer" : `Bearer ${challenge}` };

  function decide(exchange: Exchange, token: string, given: Verdict): undefined {
    const verdict = given.kind === "invalid" ? namingIssuer(given, token) : given;
    if (verdict.kind === "valid") {
      exchange.attributes.jwt = verdict.claims;
      exchange.authenticated(verdict.principal);
      reader.withhold(exchange, true);
      return undefined;
    }
    if (mode === "permissive") {
      reader.withhold(exchange, false);
      const detail = verdict.kind === "unavailable" ? verdict.detail : verdict.problem.detail;
      toleratedInShadow(exchange, kind, verdict.kind === "unavailable" ? KEYS_MISSING : verdict.problem.reason, detail);
      return exchange.skip(`the token is ignored: ${detail}`);
    }
    if (verdict.kind === "unavailable") {
      throw new GatewayError("not_ready", {
        message: KEYS_MISSING,
        detail: verdict.detail,
        headers: { "retry-after": String(verdict.retryAfterSeconds) },
      });
    }
    throw invalidToken(verdict.problem, token);
  }

  function invalidToken(problem: TokenProblem, token: string): GatewayError {
    const hint = options.hint?.(problem, readUnverified(token)?.claims);
    const attributes = [`error="invalid_token"`, `error_description="${problem.reason}"`, challenge].filter(
      (part) => part !== "",
    );
    return new GatewayError("invalid_token", {
      message: problem.reason,
      detail: hint === undefined ? problem.detail : `${problem.detail}: ${hint}`,
      headers: { "www-authenticate": `Bearer ${attributes.join(", ")}` },
    });
  }

  function request(exchange: Exchange): undefined | Promise<undefined> {
    const found = reader.read(exchange);
    if (found.kind === "none") {
      if (mode === "permissive") toleratedInShadow(exchange, kind, "no bearer token was sent");
      if (mode !== "strict") return exchange.skip("no token was sent; none is required");
      throw new GatewayError("unauthorized", { headers: missing, detail: "no bearer token was sent" });
    }
    if (found.kind === "bad") {
      const problem = failure("form", "the token is malformed", found.detail).problem;
      return decide(exchange, "", { kind: "invalid", problem });
    }
    const verdict = verify(found.value);
    if (!(verdict instanceof Promise)) return decide(exchange, found.value, verdict);
    return verdict.then((late) => decide(exchange, found.value, late));
  }

  function verify(token: string): Verdict | Promise<Verdict> {
    const { verifier, rules } = issuers.length === 1 ? issuers[0] : selectIssuer(readUnverified(token)?.claims.iss);
    return verifier.verify(token, rules);
  }

  function namingIssuer(verdict: Verdict & { kind: "invalid" }, token: string): Verdict & { kind: "invalid" } {
    const { check } = verdict.problem;
    if (check !== "key" && check !== "issuer") return verdict;
    const iss = readUnverified(token)?.claims.iss;
    const names = issuers.map(({ rules }) => rules.issuer);
    if (iss === undefined || names.some((name) => name === iss)) return verdict;
    return { kind: "invalid", problem: issuerProblem(iss, names) };
  }

  /** Selects the issuer by the unverified `iss` claim. The token must then verify with the keys of that issuer. */
  function selectIssuer(iss: unknown): AcceptedIssuer {
    return issuers.find(({ rules }) => rules.issuer === iss) ?? issuers[0];
  }

  function given(exchange: Exchange, identity: GivenToken): undefined {
    if ("claims" in identity) {
      const principal = tokenPrincipal(identity.claims, JSON.stringify(identity.claims));
      return decide(exchange, "", { kind: "valid", claims: freezeClaims({ ...identity.claims }), principal });
    }
    const { token } = identity;
    const parsed = parseToken(token);
    if (!parsed.ok) return decide(exchange, token, { kind: "invalid", problem: parsed.problem });
    const { claims } = parsed.value;
    const problem = claimProblem(claims, selectIssuer(claims.iss).rules, exchange.startedAt);
    if (problem) return decide(exchange, token, { kind: "invalid", problem });
    return decide(exchange, token, { kind: "valid", claims, principal: tokenPrincipal(claims, token) });
  }

  function recorded(exchange: Exchange, { claims }: RecordedIdentity): undefined | Promise<undefined> {
    if (claims === undefined) return request(exchange);
    const problem = claimProblem(claims, selectIssuer(claims.iss).rules, exchange.startedAt);
    if (problem) return decide(exchange, "", { kind: "invalid", problem });
    const principal = tokenPrincipal(claims, JSON.stringify(claims));
    return decide(exchange, "", { kind: "valid", claims: freezeClaims({ ...claims }), principal });
  }

  return { request, given, recorded };
}
