/**
 * A test provider whose ID tokens contain a name and roles, which can change between logins.
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
