"""Tokens: made, listed and taken back by operators."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from slotwise.live.api.common import House, Operator, RefusedRequest
from slotwise.live.api.models import MadeToken, NewToken, TokenView
from slotwise.live.auth import check_account


def routes(house: House) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/v1/tokens", tags=["tokens"])

    @router.post("", status_code=201)
    async def create_token(new: NewToken, caller: Operator) -> MadeToken:
        """Make a token; its secret is shown this once."""
        if new.user is not None:
            check_account(new.user)
        token, secret = await asyncio.to_thread(house.guard.create, new.role, new.tenant, new.user)
        return MadeToken(id=token.id, role=token.role, tenant=token.tenant, user=token.user, token=secret)

    @router.get("")
    async def tokens(caller: Operator) -> list[TokenView]:
        """All tokens, without their secrets."""
        found = await asyncio.to_thread(house.service.store.tokens)
        return [
            TokenView(id=one.id, role=one.role, tenant=one.tenant, user=one.user, created=one.created)
            for one in found
        ]

    @router.delete("/{identity}", status_code=204)
    async def revoke_token(identity: str, caller: Operator) -> None:
        """Take a token back, at once."""
        if not await asyncio.to_thread(house.guard.revoke, identity):
            raise RefusedRequest(404, f"there is no token {identity!r}")

    return router
