/**
 * Counts wrong passwords and API keys per client address and user name, and per client address.
 */
import { z } from "zod";
import { type OwnedKey, ownedKey } from "../../base/owner.ts";
import { GatewayError } from "../../core/errors.ts";
import type { CompileEnv } from "../../core/policy.ts";
import { knownAddress, type Source } from "../../core/source.ts";
import { clientNetwork } from "../../http/host.ts";
import { openMinuteCounts } from "./minute-counts.ts";

const MAX_FAILURES = 4_000;

export const failureLimitSchema = z
  .union([
    z.literal(false),
    z.strictObject({
      user: z
        .int()
        .min(1)
        .max(MAX_FAILURES)
        .default(20)
        .describe("Wrong credentials per minute of one user name (`basicAuth`) from one client address. Default: 20."),
      address: z
        .int()
        .min(1)
        .max(MAX_FAILURES)
        .default(200)
        .describe("Wrong credentials per minute from one client address, for all user names. Default: 200."),
      block: z
        .boolean()
        .default(false)
        .describe(
          "Whether correct credentials are rejected too while the limit is reached, which stops guessing but lets others lock users out who share an address. Default: false.",
        ),
    }),
  ])
  .optional()
  .describe("Answers wrong credentials beyond a limit with 429 instead of 401. `false` turns it off.");

export type FailureLimitConfig = z.output<typeof failureLimitSchema>;

export interface FailureLimit {
  /** Throws if the client may not be checked now. Called before a credential is checked. */
  check(source: Source, user: string): void;
  /** Counts a wrong credential, or throws if the limit is reached. */
  failed(source: Source, user: string): void;
}

const NO_LIMIT: FailureLimit = { check: () => undefined, failed: () => undefined };

/**
 * Compiles `failureLimit`. `user` is empty for credentials without a user name, which are all counted as one user of
 * their address.
 */
export function compileFailureLimit(config: FailureLimitConfig, kind: string, env: CompileEnv): FailureLimit {
  if (config === false) return NO_LIMIT;
  const { user: perUser, address: perAddress, block } = config ?? { user: 20, address: 200, block: false };
  const table = openMinuteCounts(env);
  const scope = JSON.stringify([env.owner.prefix, env.scopeName, kind]);
  const keyOf = (counted: string): OwnedKey => ownedKey(env.owner, `${scope} ${counted}`);

  function reached(source: Source, user: string): { counts: readonly Count[]; full: Count | undefined } {
    const known = knownAddress(source);
    const address = known === undefined ? undefined : clientNetwork(known);
    const counts: Count[] = [];
    if (address !== undefined || user !== "")
      counts.push({ key: keyOf(`user ${JSON.stringify([address, user])}`), max: perUser });
    if (address !== undefined) counts.push({ key: keyOf(`address ${address}`), max: perAddress });
    return { counts, full: counts.find(({ key, max }) => table.count(key).count >= max) };
  }

  function reject({ key, max }: Count): never {
    throw new GatewayError("rate_limited", {
      detail: `more than ${max} wrong credentials in a minute`,
      headers: { "retry-after": String(table.count(key).resetSeconds) },
    });
  }

  return {
    check(source, user) {
      if (!block) return;
      const { full } = reached(source, user);
      if (full !== undefined) reject(full);
    },
    failed(source, user) {
      const { counts, full } = reached(source, user);
      if (full !== undefined) reject(full);
      for (const { key } of counts) table.add(key);
    },
  };
}

interface Count {
  readonly key: OwnedKey;
  readonly max: number;
}
