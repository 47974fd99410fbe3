"""People, roles and tokens: who may change what, and that nobody gives themselves more than they have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from console.services.accounts import oidc_user
from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs import accounts
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.users import Users

CLAIMS = {"iss": "https://id.example", "sub": "42", "name": "Ada", "email": "Ada@Example.org", "email_verified": True}


@pytest.fixture
def users(job_database: Any) -> Users:
    return Users(job_database)


@pytest.fixture
def admin(users: Users) -> User:
    return users.local()


@pytest.fixture
def member(users: Users) -> User:
    return users.add("Mia", role="member", email="mia@example.org")


def oidc(users: Users, *, admins: tuple[str, ...] = (), new_users: str = "refuse", **claims: Any) -> User:
    return oidc_user(users, CLAIMS | claims, admins=admins, new_users=new_users, emails_are_verified=False)


def test_only_admins_change_people(users: Users, admin: User, member: User) -> None:
    for refused in (
        lambda: accounts.add_person(users, member, name="X", email="", role="viewer"),
        lambda: accounts.set_role(users, member, member.id, "admin"),
        lambda: accounts.set_disabled(users, member, admin.id, True),
        lambda: accounts.tokens(users, member, admin.id),
        lambda: accounts.create_token(users, member, owner_id=admin.id, name="x", scopes=["read"], days=1),
    ):
        with pytest.raises(ForbiddenError):
            refused()
    assert users.get(member.id).role == "member"


def test_the_last_admin_stays_one(users: Users, admin: User, member: User) -> None:
    with pytest.raises(ConflictError, match="last admin"):
        accounts.set_role(users, admin, admin.id, "member")
    with pytest.raises(ConflictError, match="cannot disable yourself"):
        accounts.set_disabled(users, admin, admin.id, True)
    accounts.set_role(users, admin, member.id, "admin")
    assert accounts.set_role(users, admin, admin.id, "member").role == "member"


def test_people_are_added_once_and_with_an_address_that_is_one(users: Users, admin: User) -> None:
    added = accounts.add_person(users, admin, name="  Ada  L. ", email=" ADA@example.org ", role="viewer")
    assert (added.name, added.email, added.role) == ("Ada L.", "ada@example.org", "viewer")
    with pytest.raises(ConflictError, match="is there already"):
        accounts.add_person(users, admin, name="Ada", email="ada@example.org", role="viewer")
    for name, email in (("", ""), ("X", "no address"), ("X", "@x")):
        with pytest.raises(ConfigError):
            accounts.add_person(users, admin, name=name, email=email, role="viewer")


def test_a_token_speaks_for_its_owner_until_it_is_revoked(users: Users, admin: User, member: User) -> None:
    text, token = accounts.create_token(users, member, owner_id=member.id, name="laptop", scopes=["submit"], days=30)
    assert users.authenticate(text).scopes == {"submit"}
    assert [each.name for each in accounts.tokens(users, admin, member.id)] == ["laptop"]
    with pytest.raises(NotFoundError):
        accounts.revoke_token(users, admin, owner_id=admin.id, token_id=token.id)
    accounts.revoke_token(users, member, owner_id=member.id, token_id=token.id)
    assert accounts.tokens(users, member, member.id) == []
    with pytest.raises(ForbiddenError):
        users.authenticate(text)


def test_a_token_gives_no_more_than_role_and_own_scopes(users: Users, admin: User, member: User) -> None:
    with pytest.raises(ForbiddenError, match="cannot have the scope admin"):
        accounts.create_token(users, member, owner_id=member.id, name="x", scopes=["admin"], days=1)
    through_token = replace(admin, scopes=frozenset({"read", "admin"}))
    with pytest.raises(ForbiddenError, match="cannot have the scope submit"):
        accounts.create_token(users, through_token, owner_id=admin.id, name="x", scopes=["submit"], days=1)
    for name, scopes, days in (("", ["read"], 1), ("x", [], 1), ("x", ["read"], 0), ("x", ["read"], 400)):
        with pytest.raises(ConfigError):
            accounts.create_token(users, admin, owner_id=admin.id, name=name, scopes=scopes, days=days)


def test_a_token_makes_and_ends_no_others_and_none_that_outlives_it(users: Users, admin: User, member: User) -> None:
    text, token = accounts.create_token(users, member, owner_id=member.id, name="laptop", scopes=["read"], days=2)
    holder = users.authenticate(text)
    assert not accounts.may_change_tokens(holder)
    with pytest.raises(ForbiddenError, match="came with a token"):
        accounts.create_token(users, holder, owner_id=member.id, name="again", scopes=["read"], days=365)
    with pytest.raises(ForbiddenError, match="came with a token"):
        accounts.revoke_token(users, holder, owner_id=member.id, token_id=token.id)
    text, own = accounts.create_token(users, admin, owner_id=admin.id, name="ops", scopes=["admin", "read"], days=3)
    operator = users.authenticate(text)
    for owner in (admin, member):
        _, made = accounts.create_token(users, operator, owner_id=owner.id, name="x", scopes=["read"], days=365)
        assert made.expires_at == own.expires_at
    _, short = accounts.create_token(users, operator, owner_id=member.id, name="x", scopes=["read"], days=1)
    assert short.expires_at is not None
    assert own.expires_at is not None
    assert short.expires_at < own.expires_at
    accounts.revoke_token(users, operator, owner_id=member.id, token_id=token.id)


def test_of_two_admins_who_end_each_others_role_at_once_one_stays(users: Users, admin: User, member: User) -> None:
    other = users.set_role(member.id, "admin")

    def end(pair: tuple[User, User]) -> bool:
        try:
            accounts.set_role(users, pair[0], pair[1].id, "member")
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            assert sorted(pool.map(end, [(admin, other), (other, admin)])) == [False, True]
            assert [user.role for user in users.all()].count("admin") == 1
            for user in (admin, other):
                users.set_role(user.id, "admin")


def test_a_disabled_users_token_is_worth_nothing(users: Users, admin: User, member: User) -> None:
    text, token = accounts.create_token(users, member, owner_id=member.id, name="x", scopes=["read"], days=1)
    accounts.set_disabled(users, admin, member.id, True)
    assert users.token_id(text) is None
    with pytest.raises(ForbiddenError):
        users.of_token(token.id)


def test_with_oidc_strangers_are_sent_away_unless_the_settings_let_them_in(users: Users) -> None:
    with pytest.raises(ForbiddenError, match=r"nobody has added ada@example\.org"):
        oidc(users)
    assert oidc(users, new_users="viewer").role == "viewer"
    assert oidc(users).name == "Ada"  # known from then on


def test_the_first_admin_is_whom_the_settings_name(users: Users) -> None:
    assert oidc(users, admins=("ada@example.org",)).role == "admin"


def test_an_added_person_is_bound_at_the_first_sign_in_and_nobody_else_after(users: Users, member: User) -> None:
    found = oidc(users, email="MIA@example.org")
    assert (found.id, found.role) == (member.id, "member")
    assert oidc(users, email="other@example.org").id == member.id  # the subject counts, not the address
    with pytest.raises(ConflictError, match="signs in as somebody already"):
        oidc(users, email="mia@example.org", sub="43")


def test_an_address_that_is_not_verified_makes_nobody_an_admin(users: Users, member: User) -> None:
    with pytest.raises(ForbiddenError):
        oidc(users, admins=("ada@example.org",), email_verified=False)
    with pytest.raises(ForbiddenError):
        oidc(users, email="mia@example.org", email_verified=None)
    with pytest.raises(ForbiddenError, match="no subject"):
        oidc(users, sub="")
