/**
 * A stand-in whose ID tokens say a name and roles, which may change from one sign-in to the next.
 */
export function withRoles(roles: () => readonly string[]): object {
  return {
    claims: { openid: ["sub", "name", "roles"] },
    conformIdTokenClaims: false,
    findAccount: async (_context: unknown, accountId: string) => ({
      accountId,
      claims: async () => ({ sub: accountId, name: "Alice Example", roles: roles() }),
    }),
  };
}
